/* ckpt_manifest.h: the text of a manifest, written from its beginning to its end. ckpt_load.c reads it. */
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

#endif
