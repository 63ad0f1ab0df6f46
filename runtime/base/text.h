/* text.h: builds text in a buffer of the caller: lines of the log, manifests, headers. Never allocates. */
#ifndef GA_TEXT_H
#define GA_TEXT_H

#include "base/ga.h"

typedef struct ga_text {
    char *base; /* zero-terminated while not full */
    size_t size, used;
    bool full; /* a piece did not fit and was left out as a whole */
} ga_text;

void ga_text_add(ga_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string in quotes; bytes that are not UTF-8 become U+FFFD. */
void ga_text_string(ga_text *t, const char *s);

/* A JSON number with `digits` significant digits, or "nan", "inf", "-inf" in quotes. */
void ga_text_number(ga_text *t, double value, int digits);

/* Writes all n bytes to fd, despite interrupts and short writes: 0 or an errno. */
int ga_write_all(int fd, const void *data, size_t n);

#endif
