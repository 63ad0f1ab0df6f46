/* variants.c: see variants.h. A save's operations are those up to its acknowledgement: files, syncs,
 * the rename to the final name, the sync of the folder of checkpoints, removals. */
#include "variants.h"

#include <string.h>

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_data(const trace *t, const op *o) {
    return o->node >= 0 && strstr(t->name[o->node], ".safetensors") != NULL;
}

static bool publishes(const op *o) {
    return (o->kind == OP_RENAME || o->kind == OP_EXCHANGE) && starts(o->name, ".tmp-") &&
           starts(o->name2, "cycle-");
}

static int parent_of(const op *ops, int count) { /* the folder of checkpoints */
    for (int i = 0; i < count; i++)
        if (publishes(&ops[i])) return ops[i].folder;
    return -1;
}

static void remove_at(op *ops, int *count, int i) {
    memmove(&ops[i], &ops[i + 1], sizeof *ops * (size_t)(*count - i - 1));
    --*count;
}

static void move(op *ops, int from, int to) {
    op one = ops[from];
    if (from < to) memmove(&ops[from], &ops[from + 1], sizeof *ops * (size_t)(to - from));
    if (from > to) memmove(&ops[to + 1], &ops[to], sizeof *ops * (size_t)(from - to));
    ops[to] = one;
}

typedef bool (*test)(const trace *t, const op *o);

static void leave_out(const trace *t, op *ops, int *count, test is) {
    for (int i = *count - 1; i >= 0; i--)
        if (is(t, &ops[i])) remove_at(ops, count, i);
}

/* -- a sync left out ----------------------------------------------------------------------------- */

static bool syncs_data(const trace *t, const op *o) {
    return o->kind == OP_SYNC_FILE && is_data(t, o);
}

static bool syncs_manifest(const trace *t, const op *o) {
    return o->kind == OP_SYNC_FILE && !is_data(t, o);
}

static bool syncs_new_folder(const trace *t, const op *o) {
    return o->kind == OP_SYNC_FOLDER && starts(t->name[o->node], ".tmp-");
}

static void no_data_sync(const trace *t, op *ops, int *count) {
    leave_out(t, ops, count, syncs_data);
}

static void no_manifest_sync(const trace *t, op *ops, int *count) {
    leave_out(t, ops, count, syncs_manifest);
}

static void no_new_folder_sync(const trace *t, op *ops, int *count) {
    leave_out(t, ops, count, syncs_new_folder);
}

static void no_folder_sync(const trace *t, op *ops, int *count) {
    int parent = parent_of(ops, *count);
    (void)t;
    for (int i = *count - 1; i >= 0; i--)
        if (ops[i].kind == OP_SYNC_FOLDER && ops[i].node == parent) remove_at(ops, count, i);
}

static void no_parent_sync(const trace *t, op *ops, int *count) {
    int parent = parent_of(ops, *count);
    for (int i = *count - 1; i >= 0; i--)
        if (ops[i].kind == OP_SYNC_FOLDER && ops[i].node < parent && !syncs_new_folder(t, &ops[i]))
            remove_at(ops, count, i);
}

/* -- a step at another time ---------------------------------------------------------------------- */

/* The steps of one save. */
typedef struct {
    int start, publish, sync, end; /* end: its acknowledgement */
} steps;

/* The next complete save from operation `from` on. */
static bool next_save(const op *ops, int count, int from, steps *s) {
    *s = (steps){from, -1, -1, -1};
    for (int i = from; i < count; i++) {
        if (publishes(&ops[i])) s->publish = i;
        if (s->publish >= 0 && s->sync < 0 && ops[i].kind == OP_SYNC_FOLDER &&
            ops[i].node == ops[s->publish].folder)
            s->sync = i;
        if (ops[i].kind != OP_ACK) continue;
        s->end = i;
        if (s->sync >= 0) return true;
        *s = (steps){i + 1, -1, -1, -1};
    }
    return false;
}

static void early_ack(const trace *t, op *ops, int *count) {
    steps s;
    (void)t;
    for (int from = 0; next_save(ops, *count, from, &s); from = s.end + 1) move(ops, s.end, s.sync);
}

static void ack_before_rename(const trace *t, op *ops, int *count) {
    steps s;
    (void)t;
    for (int from = 0; next_save(ops, *count, from, &s); from = s.end + 1)
        move(ops, s.end, s.publish);
}

static void rename_before_syncs(const trace *t, op *ops, int *count) {
    steps s;
    for (int from = 0; next_save(ops, *count, from, &s); from = s.end + 1)
        for (int i = s.publish - 1, publish = s.publish; i >= s.start; i--)
            if (ops[i].kind == OP_SYNC_FILE || syncs_new_folder(t, &ops[i])) move(ops, i, publish--);
}

static void manifest_first(const trace *t, op *ops, int *count) {
    steps s;
    for (int from = 0; next_save(ops, *count, from, &s); from = s.end + 1)
        for (int i = s.start, left = s.publish - s.start; left > 0; left--) {
            if (is_data(t, &ops[i]))
                move(ops, i, s.sync);
            else
                i++;
        }
}

static void early_removal_to(op *ops, int count, bool to_start) {
    steps s;
    for (int from = 0; next_save(ops, count, from, &s); from = s.end + 1)
        for (int i = s.sync + 1, to = to_start ? s.start : s.sync; i < s.end; i++)
            move(ops, i, to++);
}

static void removal_before_sync(const trace *t, op *ops, int *count) {
    (void)t;
    early_removal_to(ops, *count, false);
}

static void removal_first(const trace *t, op *ops, int *count) {
    (void)t;
    early_removal_to(ops, *count, true);
}

static void out_of_sight(const trace *t, op *ops, int *count) {
    (void)t;
    for (int i = 0; i < *count; i++)
        if (ops[i].kind == OP_RENAME && strstr(ops[i].name2, "-old"))
            memcpy(ops[i].name2, ".tmp-old", 9);
}

/* Removal under the checkpoint's own name, without the rename before it. */
static void remove_in_place(const trace *t, op *ops, int *count) {
    (void)t;
    for (int i = *count - 1; i >= 0; i--)
        if (ops[i].kind == OP_RENAME && starts(ops[i].name, "cycle-") && !strstr(ops[i].name2, "-old")) {
            for (int k = i + 1; k < *count; k++)
                if (ops[k].kind == OP_REMOVE && strcmp(ops[k].name, ops[i].name2) == 0)
                    memcpy(ops[k].name, ops[i].name, TRACE_NAME);
            remove_at(ops, count, i);
        }
}

/* No temporary name: only the manifest tells that a checkpoint is complete. */
static void in_place(const trace *t, op *ops, int *count) {
    (void)t;
    for (int i = *count - 1; i >= 0; i--)
        if (publishes(&ops[i])) {
            for (int k = i - 1; k >= 0; k--)
                if (ops[k].kind == OP_MAKE && ops[k].node == ops[i].node)
                    memcpy(ops[k].name, ops[i].name2, TRACE_NAME);
            remove_at(ops, count, i);
        }
}

static void in_place_no_manifest_sync(const trace *t, op *ops, int *count) {
    in_place(t, ops, count);
    no_manifest_sync(t, ops, count);
}

const variant variants[] = {
    {"data files not synced", "keep 1", true, no_data_sync},
    {"parts of data files not synced", "divided", true, no_data_sync},
    {"manifest not synced", "keep 1", true, no_manifest_sync},
    {"new folder not synced", "keep 1", true, no_new_folder_sync},
    {"folder of checkpoints not synced", "keep 2", true, no_folder_sync},
    {"parents of a new folder not synced", "keep 2", true, no_parent_sync},
    {"acknowledged before the folder is synced", "keep 2", true, early_ack},
    {"acknowledged before the rename", "keep 2", true, ack_before_rename},
    {"renamed before the files are synced", "the same cycle again", true, rename_before_syncs},
    {"manifest first, files after the rename", "keep 2", true, manifest_first},
    {"old one removed first", "keep 1", true, removal_first},
    {"old one removed before the folder is synced", "keep 1", true, removal_before_sync},
    {"replaced one removed before the folder is synced", "the same cycle again", true,
     removal_before_sync},
    {"replaced one moved out of sight", "again, without exchange", true, out_of_sight},
    {"in place, manifest not synced", "keep 2", true, in_place_no_manifest_sync},
    {"in place", "keep 2", false, in_place},
    {"old one removed under its name", "keep 2", false, remove_in_place},
};
const int variant_count = sizeof variants / sizeof *variants;
