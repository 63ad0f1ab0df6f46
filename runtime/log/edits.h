/* edits.h: the text of the kernels while a program runs: whether the file was edited, and a module of step.c with the
 * text that was found, made by the command that built the program. train-watch has this, `train` not. It allocates. */
#ifndef GA_EDITS_H
#define GA_EDITS_H

#include "files/ckpt.h"

typedef struct ga_edits {
    char folder[GA_PATH_MAX]; /* of the program, with kernels.c, step.c and .command */
    char *command;            /* of the compiler, as `make` used it */
    char *text;               /* of kernels.c in use; NULL before the first */
    char *found;              /* the text that was found last, which may be the same */
    struct ga_seen { int64_t inode, bytes, seconds, nanoseconds; bool settled; } seen; /* the file as it was found */
    int made;                 /* modules so far */
} ga_edits;

/* GA_INPUT without the command of a build. */
int ga_edits_open(ga_edits *w, const char *folder, ga_err *e);

/* Whether kernels.c has another text than at the last look and than the one in use; while the file is not there it has
 * not. */
bool ga_edits_found(ga_edits *w);

/* The SHA-256 of the text that was found, as hexadecimal digits. */
void ga_edits_hash(const ga_edits *w, char hex[65]);

/* Compiles the text that was found with step.c and loads the module: *symbol is the address of `name` in it. The
 * compiler's messages go to stderr. GA_INPUT if that fails: the message names the kernel that is missing or has other
 * parameters than the one in use, if there is one. */
int ga_edits_load(ga_edits *w, const char *name, void **module, const void **symbol, ga_err *e);

/* The next look finds the text again. */
void ga_edits_forget(ga_edits *w);

/* The text that was found is the one in use. */
void ga_edits_use(ga_edits *w);

#endif
