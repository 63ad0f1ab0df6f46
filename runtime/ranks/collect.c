/* collect.c: see collect.h. */
#include "ranks/collect.h"

#include <string.h>

/* Refuses what would be read or written where nothing is. */
static int check_there(const char *call, const char *what, const void *at, size_t n, ga_err *e) {
    return at || n == 0 ? 0 : ga_fail(e, GA_INPUT, "%s: %s is NULL, expected room for %zu values", call, what, n);
}

int ga_collect_gather_in(ga_comm *c, int group, const void *in, void *out, size_t n, ga_dtype t, ga_err *e) {
    GA_TRY(check_there("gather", "in", in, n, e));
    GA_TRY(check_there("gather", "out", out, n, e));
    if ((unsigned)t > GA_U8) return ga_fail(e, GA_INPUT, "gather: type %d, expected GA_F32 to GA_U8", (int)t);
    const size_t bytes = n * ga_dtype_bytes(t);
    memmove((char *)out + (size_t)ga_comm_group_rank(c, group) * bytes, in, bytes);
    for (int rank = 0; rank < ga_comm_group_size(c, group); rank++)
        GA_TRY(ga_comm_broadcast_in(c, group, (char *)out + (size_t)rank * bytes, bytes, rank, e));
    return 0;
}

/* Maximum or minimum over the ranks, gathered in pieces. */
static int extreme(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, bool greatest, ga_err *e) {
    enum { PIECE = 512 };
    double best[PIECE], other[PIECE];
    for (size_t from = 0; from < n; from += PIECE) {
        const size_t count = n - from < PIECE ? n - from : PIECE;
        for (int rank = 0; rank < ga_comm_group_size(c, group); rank++) {
            for (size_t i = 0; i < count; i++) other[i] = ga_get(buf, t, (int64_t)(from + i));
            GA_TRY(ga_comm_broadcast_in(c, group, other, count * sizeof *other, rank, e));
            for (size_t i = 0; i < count; i++)
                if (rank == 0 || (greatest ? other[i] > best[i] : other[i] < best[i]) || other[i] != other[i])
                    best[i] = other[i];
        }
        for (size_t i = 0; i < count; i++) ga_set(buf, t, (int64_t)(from + i), best[i]);
    }
    return 0;
}

int ga_collect_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e) {
    const int world = ga_comm_group_size(c, group);
    if (to < -1 || to >= world)
        return ga_fail(e, GA_INPUT, "reduce: rank %d, expected -1 to %d", to, world - 1);
    GA_TRY(check_there("reduce", "buf", buf, n, e));
    if (t != GA_F32 && t != GA_F64 && !(op == GA_SUM && (t == GA_I32 || t == GA_I64)))
        return ga_fail(e, GA_INPUT, "reduce: %s, expected F32 or F64, for sums also I32 or I64",
                       (unsigned)t > GA_U8 ? "no type" : ga_dtype_name(t));
    if (op != GA_SUM && op != GA_MEAN && op != GA_MAX && op != GA_MIN)
        return ga_fail(e, GA_INPUT, "reduce: operation %d, expected GA_SUM, GA_MEAN, GA_MAX or GA_MIN", (int)op);
    if (op == GA_MAX || op == GA_MIN) return extreme(c, group, buf, n, t, op == GA_MAX, e);
    GA_TRY(ga_comm_all_reduce_in(c, group, buf, n, t, e));
    for (size_t i = 0; op == GA_MEAN && i < n; i++)
        ga_set(buf, t, (int64_t)i, ga_get(buf, t, (int64_t)i) / world);
    return 0;
}

int ga_collect_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int from, ga_err *e) {
    const int world = ga_comm_group_size(c, group);
    if (from < 0 || from >= world)
        return ga_fail(e, GA_INPUT, "broadcast: rank %d, expected 0 to %d", from, world - 1);
    GA_TRY(check_there("broadcast", "buf", buf, bytes, e));
    return ga_comm_broadcast_in(c, group, buf, bytes, from, e);
}

int ga_collect_gather(ga_comm *c, const void *in, void *out, size_t n, ga_dtype t, ga_err *e) {
    return ga_collect_gather_in(c, 0, in, out, n, t, e);
}

int ga_collect_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e) {
    return ga_collect_reduce_in(c, 0, buf, n, t, op, to, e);
}

int ga_collect_broadcast(ga_comm *c, void *buf, size_t bytes, int from, ga_err *e) {
    return ga_collect_broadcast_in(c, 0, buf, bytes, from, e);
}
