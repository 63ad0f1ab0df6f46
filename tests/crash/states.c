/* states.c: see states.h. For each operation a state decides whether it happened, and is laid out as a
 * folder tree. Equal trees are tried once. */
#define _GNU_SOURCE
#include "states.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 512, PARTS = 4096, ENTRIES = 32, FILE_MAX = 1 << 16, SEEN = 1 << 21, PATH = 1024 };

/* A part of an operation that may or may not have reached the disk. */
typedef struct {
    int op;
    bool is_size;
    int64_t from, to; /* bytes of the file */
} part;

typedef struct {
    int count, node[ENTRIES];
    char name[ENTRIES][TRACE_NAME]; /* in order */
} folder;

typedef struct {
    const trace *t;
    const op *ops;
    int length;               /* operations done before the failure */
    bool durable[TRACE_OPS];
    int first_part[TRACE_OPS];
    int parts;
    part part[PARTS];
    bool there[PARTS];
    folder folders[TRACE_NODES];
    unsigned char content[FILE_MAX];
} state;

static state now;

/* -- results by the hash of a tree --------------------------------------------------------------- */

static struct {
    uint64_t hash;
    int64_t found;
} *seen;

static int64_t *place_of_hash(uint64_t hash, bool *known) {
    if (!seen) seen = calloc(SEEN, sizeof *seen);
    if (!seen) abort();
    size_t at = hash % SEEN;
    while (seen[at].hash && seen[at].hash != hash) at = (at + 1) % SEEN;
    *known = seen[at].hash != 0;
    seen[at].hash = hash;
    return &seen[at].found;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    const unsigned char *at = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* -- the tree of a state ------------------------------------------------------------------------- */

static void set_entry(folder *f, const char *name, int node) {
    int at = 0;
    while (at < f->count && strcmp(f->name[at], name) < 0) at++;
    bool same = at < f->count && strcmp(f->name[at], name) == 0;
    if (!same) {
        if (f->count == ENTRIES) abort();
        memmove(&f->node[at + 1], &f->node[at], sizeof f->node[0] * (size_t)(f->count - at));
        memmove(f->name[at + 1], f->name[at], (size_t)TRACE_NAME * (size_t)(f->count - at));
        memcpy(f->name[at], name, TRACE_NAME);
        f->count++;
    }
    f->node[at] = node;
}

static void drop_entry(folder *f, const char *name) {
    for (int at = 0; at < f->count; at++)
        if (strcmp(f->name[at], name) == 0) {
            f->count--;
            memmove(&f->node[at], &f->node[at + 1], sizeof f->node[0] * (size_t)(f->count - at));
            memmove(f->name[at], f->name[at + 1], (size_t)TRACE_NAME * (size_t)(f->count - at));
            return;
        }
}

static void apply_entry(const op *o) {
    folder *f = &now.folders[o->folder];
    if (o->kind == OP_CREATE || o->kind == OP_MAKE) set_entry(f, o->name, o->node);
    if (o->kind == OP_REMOVE || o->kind == OP_RENAME) drop_entry(f, o->name);
    if (o->kind == OP_RENAME || o->kind == OP_EXCHANGE) set_entry(f, o->name2, o->node);
    if (o->kind == OP_EXCHANGE) set_entry(f, o->name, o->node2);
}

static bool is_entry(const op *o) {
    return o->folder >= 0;
}

static void build_folders(void) {
    for (int i = 0; i < now.t->nodes; i++) now.folders[i].count = 0;
    for (int i = 0; i < now.length; i++)
        if (is_entry(&now.ops[i]) && (now.durable[i] || now.there[now.first_part[i]]))
            apply_entry(&now.ops[i]);
}

/* Writes the content of a file into now.content and returns its size. */
static int64_t build_file(int node) {
    int64_t size = 0;
    for (int i = 0; i < now.length; i++) {
        const op *o = &now.ops[i];
        bool sized = now.durable[i] || (o->kind == OP_WRITE && now.there[now.first_part[i]]);
        if (o->kind == OP_WRITE && o->node == node && sized && o->offset + o->n > size)
            size = o->offset + o->n;
    }
    if (size > FILE_MAX) abort();
    memset(now.content, 0, (size_t)size);
    for (int i = 0; i < now.length; i++) {
        const op *o = &now.ops[i];
        if (o->kind != OP_WRITE || o->node != node) continue;
        int parts = now.durable[i] ? 1 : now.first_part[i + 1] - now.first_part[i] - 1;
        for (int k = 0; k < parts; k++) {
            const part *p = &now.part[now.first_part[i] + 1 + k];
            int64_t from = now.durable[i] ? o->offset : p->from;
            int64_t to = now.durable[i] ? o->offset + o->n : p->to;
            if (to > size) to = size;
            if ((now.durable[i] || now.there[now.first_part[i] + 1 + k]) && from < to)
                memcpy(now.content + from, o->data + (from - o->offset), (size_t)(to - from));
        }
    }
    return size;
}

static uint64_t hash_tree(int node, uint64_t hash) {
    const folder *f = &now.folders[node];
    for (int i = 0; i < f->count; i++) {
        hash = hash_bytes(hash, f->name[i], strlen(f->name[i]) + 1);
        if (now.t->is_folder[f->node[i]]) {
            hash = hash_tree(f->node[i], hash_bytes(hash, "{", 1));
        } else {
            int64_t size = build_file(f->node[i]);
            hash = hash_bytes(hash, &size, sizeof size);
            hash = hash_bytes(hash, now.content, (size_t)size);
        }
    }
    return hash_bytes(hash, "}", 1);
}

static void lay_out(int node, const char *path) {
    const folder *f = &now.folders[node];
    char inner[PATH];
    if (mkdir(path, 0777)) abort();
    for (int i = 0; i < f->count; i++) {
        snprintf(inner, sizeof inner, "%.900s/%s", path, f->name[i]);
        if (now.t->is_folder[f->node[i]]) {
            lay_out(f->node[i], inner);
            continue;
        }
        int64_t size = build_file(f->node[i]);
        int fd = open(inner, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || write(fd, now.content, (size_t)size) != size) abort();
        close(fd);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st, (void)type, (void)where;
    return remove(path);
}

/* -- one state ----------------------------------------------------------------------------------- */

static void try_state(const effort *how, int64_t acknowledged, tally *out) {
    bool known;
    build_folders();
    int64_t *found = place_of_hash(hash_tree(0, 0xcbf29ce484222325u) | 1, &known);
    if (!known) {
        nftw(how->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        lay_out(0, how->root);
        *found = how->find(how->root);
        out->distinct++;
    }
    out->states++;
    if (*found >= acknowledged) return;
    if (out->violations++ > 0) return;
    const char *kind = *found == FOUND_DAMAGED  ? "a damaged one loads"
                       : *found == FOUND_STUCK  ? "no further save is possible"
                       : *found == FOUND_NONE   ? "nothing loads"
                                                : "an older one loads";
    snprintf(out->first, sizeof out->first, "after operation %d of save %lld: %s", now.length,
             (long long)acknowledged, kind);
}

/* -- the states after the first now.length operations ---------------------------------------------- */

static bool synced_later(int i) {
    const op *o = &now.ops[i];
    for (int k = i + 1; k < now.length; k++) {
        const op *later = &now.ops[k];
        if (o->kind == OP_WRITE && later->kind == OP_SYNC_FILE && later->node == o->node) return true;
        if (is_entry(o) && later->kind == OP_SYNC_FOLDER && later->node == o->folder) return true;
    }
    return false;
}

static void add_part(int i, bool is_size, int64_t from, int64_t to) {
    if (now.parts == PARTS) abort();
    now.part[now.parts++] = (part){i, is_size, from, to};
}

/* Splits the operations that are not durable into parts; the first part of a write is the new size. */
static void find_parts(void) {
    now.parts = 0;
    for (int i = 0; i < now.length; i++) {
        const op *o = &now.ops[i];
        now.first_part[i] = now.parts;
        now.durable[i] = (!is_entry(o) && o->kind != OP_WRITE) || synced_later(i);
        if (now.durable[i]) continue;
        add_part(i, true, 0, 0);
        if (o->kind != OP_WRITE) continue;
        for (int64_t at = o->offset; at < o->offset + o->n;) {
            int64_t end = (at / PIECE + 1) * PIECE;
            if (end > o->offset + o->n) end = o->offset + o->n;
            add_part(i, false, at, end);
            at = end;
        }
    }
    now.first_part[now.length] = now.parts;
}

static uint64_t next_random(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static void try_chosen(const effort *how, int64_t acknowledged, tally *out) {
    for (int kind = 0; kind < 3; kind++) /* each part alone, each missing, each prefix */
        for (int k = 0; k <= now.parts; k++) {
            for (int i = 0; i < now.parts; i++)
                now.there[i] = kind == 0 ? i == k : kind == 1 ? i != k : i < k;
            try_state(how, acknowledged, out);
        }
    for (int k = 0; k < how->random; k++) {
        uint64_t most = next_random() % 8; /* of 8 parts that are there, on average */
        for (int i = 0; i < now.parts; i++) now.there[i] = next_random() % 8 <= most;
        try_state(how, acknowledged, out);
    }
}

static void try_length(const effort *how, int64_t acknowledged, tally *out) {
    find_parts();
    if (now.parts > how->exhaustive) {
        try_chosen(how, acknowledged, out);
        return;
    }
    for (int64_t set = 0; set < (int64_t)1 << now.parts; set++) {
        for (int i = 0; i < now.parts; i++) now.there[i] = (bool)(set >> i & 1);
        try_state(how, acknowledged, out);
    }
}

void states_try(const trace *t, const op *ops, int count, const effort *how, tally *out) {
    int64_t acknowledged = 0;
    now.t = t;
    now.ops = ops;
    *out = (tally){0};
    for (now.length = 0; now.length <= count; now.length++) {
        if (now.length > 0 && ops[now.length - 1].kind == OP_ACK)
            acknowledged = ops[now.length - 1].id;
        try_length(how, acknowledged, out);
        if (how->first_only && out->violations) return;
    }
}
