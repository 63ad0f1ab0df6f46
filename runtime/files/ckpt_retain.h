/* ckpt_retain.h: which checkpoints of a folder stay after a save. */
#ifndef GA_CKPT_RETAIN_H
#define GA_CKPT_RETAIN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_ckpt_kept {
    int folder;         /* descriptor */
    const char *path;   /* of the folder, for messages */
    const char *newest; /* name of the checkpoint just saved */
    int keep;           /* it and keep - 1 before it stay, >= 1 */
    int64_t best;       /* cycle whose checkpoint stays too; -1: none */
} ga_ckpt_kept;

/* Deletes the other checkpoints before the newest, the oldest first. A failure is said and ends that. *warned: whether
 * checkpoints later than the newest have been spoken of. */
void ga_ckpt_retain(const ga_ckpt_kept *k, bool *warned);

#endif
