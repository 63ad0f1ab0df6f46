/* ckpt_manifest.h: the text of a manifest, written from its beginning to its end (ckpt_load.c reads it), and whose a
 * file of it is. */
#ifndef GA_CKPT_MANIFEST_H
#define GA_CKPT_MANIFEST_H

#include "files/ckpt.h"
#include "base/text.h"

/* All that precedes the files. run: the number of this run; model: the hash of all names and shapes. */
void ga_manifest_begin(ga_text *t, const ga_ckpt_state *s, const char *program, const char *run, uint64_t model,
                       int world);

/* One file, with the crc32 of each GA_BLOCK bytes. */
void ga_manifest_list(ga_text *t, bool first, const char *name, int64_t bytes, const uint32_t *checksums);

/* The last line: the checksum of all lines before it. */
void ga_manifest_end(ga_text *t);

/* A file of a list of a group of ranks (ranks/comm.h), by its name. */
typedef struct ga_ckpt_list {
    int group;    /* 0: the file is one of all ranks */
    int writer;   /* the first rank of the list */
    bool held;    /* whether this rank is in it */
    ga_note note; /* its ranks, as the file has them: another list does not take it */
} ga_ckpt_list;

bool ga_ckpt_list_named(const char *file); /* whether a name is that of such a file */
ga_ckpt_list ga_ckpt_list_of(const ga_comm *c, const char *file);

#endif
