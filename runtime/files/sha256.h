/* sha256.h: SHA-256 (FIPS 180-4), fed in pieces. */
#ifndef GA_SHA256_H
#define GA_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct ga_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* fed so far */
    uint8_t block[64];
} ga_sha256;

void ga_sha256_start(ga_sha256 *h);
void ga_sha256_add(ga_sha256 *h, const void *data, size_t bytes);

/* Writes 64 hexadecimal digits and a zero; h must be started again before it is fed again. */
void ga_sha256_finish(ga_sha256 *h, char hex[65]);

#endif
