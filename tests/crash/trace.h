/* trace.h: records the operations of a save on the file system, by wrapping calls of libc at link time
 * (build.mk). Files named .lock are not recorded. */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* ENTRY operations change a folder, WRITE a file. Nodes are files and folders by identity: a rename
 * keeps them. */
typedef enum {
    OP_CREATE,      /* file `node` as `name` of `folder`; OP_MAKE the same for a folder */
    OP_MAKE,
    OP_RENAME,      /* `name` (node) becomes `name2`, both of `folder` */
    OP_EXCHANGE,    /* `name` (node) and `name2` (node2) of `folder` */
    OP_REMOVE,      /* `name` of `folder`, a file or a folder */
    OP_WRITE,       /* n bytes at offset of file `node` */
    OP_SYNC_FILE,   /* node */
    OP_SYNC_FOLDER, /* node */
    OP_ACK          /* the caller was told that save `id` is done */
} op_kind;

enum { TRACE_NAME = 96, TRACE_OPS = 4096, TRACE_NODES = 512, TRACE_BYTES = 1 << 20 };

typedef struct {
    op_kind kind;
    int folder, node, node2;
    char name[TRACE_NAME], name2[TRACE_NAME];
    int64_t offset, n, id;
    const unsigned char *data;
} op;

typedef struct {
    op ops[TRACE_OPS];
    int count, nodes;
    bool is_folder[TRACE_NODES];
    char name[TRACE_NODES][TRACE_NAME]; /* its first one */
    unsigned char bytes[TRACE_BYTES];
    int64_t used;
} trace;

/* Starts recording operations below `root`, an empty folder, which becomes node 0. */
void trace_start(trace *t, const char *root);
void trace_ack(int64_t id);
void trace_stop(void);

/* From now on folders can (not) be exchanged: renameat2 with flags fails with EINVAL. */
void trace_set_exchange(bool possible);

#endif
