/* shards.c: see shards.h. */
#include "files/shards.h"

#include "files/file.h"

#include <string.h>

enum { PIECE = 1 << 16 };

/* A tensor on its way to rank 0. */
typedef struct transfer {
    ga_comm *comm;
    const ga_array *array;
    const ga_param *param;
    int l;
    int of; /* the rank that sends; GA_ALL_RANKS: all that have a part */
    int (*take)(const struct transfer *t, const void *values, int64_t i, int64_t n, ga_err *e); /* on rank 0 */
    void *to;
    int failed; /* the status of the first call that failed; there are none behind it */
} transfer;

/* Elements that travel together; none: the end of a rank's part. */
typedef struct {
    struct {
        int64_t i, n;
    } place;
    char values[PIECE];
} parcel;

static void take(transfer *t, const void *values, int64_t i, int64_t n, ga_err *e) {
    if (t->failed == GA_OK) t->failed = t->take(t, values, i, n, e);
}

static bool sends(const transfer *t, int rank) {
    return t->of == GA_ALL_RANKS ? rank == 0 || t->array->shard : rank == t->of;
}

/* Fills in the elements behind those of the last parcel; none where they cannot be read. */
static void next_parcel(transfer *t, ga_held *h, int64_t *done, parcel *p, ga_err *e) {
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    if (*done == h->n) {
        *done = 0;
        if (!ga_array_next(t->array, t->param, t->l, h)) *h = (ga_held){t->param->n, 0, 0};
    }
    ga_held part = {h->i + *done, h->n - *done < PIECE / size ? h->n - *done : PIECE / size, h->at + *done};
    const void *values = part.n > 0 ? ga_array_get(t->array, &part, p->values, e) : p->values;
    if (!values) {
        t->failed = GA_ENVIRONMENT;
        part.n = 0;
    } else if (values != p->values) {
        memcpy(p->values, values, (size_t)(part.n * size));
    }
    p->place.i = part.i;
    p->place.n = part.n;
    *done += part.n;
}

/* Rank `from` sends what it holds. */
static int receive(transfer *t, int from, ga_err *e) {
    const int rank = ga_comm_rank(t->comm);
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    parcel p;
    ga_held h = {0};
    int64_t done = 0;
    do {
        if (rank == from) next_parcel(t, &h, &done, &p, e);
        GA_TRY(ga_comm_broadcast(t->comm, &p.place, sizeof p.place, from, e));
        if (p.place.n == 0) return GA_OK;
        GA_TRY(ga_comm_broadcast(t->comm, p.values, (size_t)(p.place.n * size), from, e));
        if (rank == 0) take(t, p.values, p.place.i, p.place.n, e);
    } while (true);
}

/* Rank 0 takes what it holds, then what each rank sends in its turn. */
static int move(transfer *t, ga_err *e) {
    char buffer[GA_RUN];
    const bool own = ga_comm_rank(t->comm) == 0 && sends(t, 0);
    for (ga_held h = {0}; own && t->failed == GA_OK && ga_array_next(t->array, t->param, t->l, &h);) {
        const void *values = ga_array_get(t->array, &h, buffer, e);
        if (values) take(t, values, h.i, h.n, e);
        else t->failed = GA_ENVIRONMENT;
    }
    for (int from = 1; from < ga_comm_size(t->comm); from++)
        if (sends(t, from)) GA_TRY(receive(t, from, e));
    return GA_OK;
}

static int take_to_memory(const transfer *t, const void *values, int64_t i, int64_t n, ga_err *e) {
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    (void)e;
    memcpy((char *)t->to + i * size, values, (size_t)(n * size));
    return GA_OK;
}

int ga_shard_collect(ga_comm *c, const ga_array *a, const ga_param *p, int l, void *out, ga_err *e) {
    transfer t = {c, a, p, l, GA_ALL_RANKS, take_to_memory, out, GA_OK};
    GA_TRY(move(&t, e));
    return t.failed;
}

static int take_to_file(const transfer *t, const void *values, int64_t i, int64_t n, ga_err *e) {
    return ga_safetensors_put_run(t->to, t->array, t->param, t->l, values, i, n, e);
}

int ga_shard_put(ga_comm *c, ga_values_file f, const ga_array *arrays, int count, int of, ga_err *e) {
    int failed = GA_OK;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++) {
                const ga_param *p = &arrays[i].params[k];
                transfer t = {c, &arrays[i], p, l, of, take_to_file, &f, failed};
                GA_TRY(move(&t, e));
                failed = t.failed;
                f.at += p->n * (int64_t)ga_dtype_bytes(arrays[i].dtype);
            }
    return failed;
}

static int begin_file(ga_new_file *f, const char *path, const ga_array *arrays, int count, int64_t *data, ga_err *e) {
    GA_TRY(ga_file_begin(f, path, e));
    const int code = ga_safetensors_begin(f->fd, path, arrays, count, NULL, 0, data, e);
    return code < 0 ? ga_file_end(f, code, e) : code;
}

int ga_shard_save(ga_comm *c, const char *path, const ga_array *arrays, int count, ga_err *e) {
    const bool first = ga_comm_rank(c) == 0;
    if (!ga_array_divided(arrays, count))
        return ga_comm_agree(c, first ? ga_safetensors_save(path, arrays, count, e) : GA_OK, e);
    ga_new_file f = {.fd = -1};
    int64_t data = 0;
    GA_TRY(ga_comm_agree(c, first ? begin_file(&f, path, arrays, count, &data, e) : GA_OK, e));
    int code = ga_shard_put(c, (ga_values_file){f.fd, path, false, data}, arrays, count, GA_ALL_RANKS, e);
    if (first) code = ga_file_end(&f, code, e);
    return ga_comm_agree(c, code, e);
}

/* Elements of the array, on all ranks or on this one. */
static int64_t elements(const ga_array *a, bool all) {
    int64_t n = 0;
    for (int k = 0; k < a->count; k++)
        for (int l = 0; l < a->params[k].count; l++) {
            if (all) n += a->params[k].n;
            for (ga_held h = {0}; !all && ga_array_next(a, &a->params[k], l, &h);) n += h.n;
        }
    return n;
}

int ga_shard_check(ga_comm *c, const ga_array *arrays, int count, ga_err *e) {
    char name[GA_NAME_MAX];
    for (int i = 0; i < count; i++) {
        const int64_t expected = elements(&arrays[i], true);
        int64_t held = 0;
        for (int rank = 0; arrays[i].shard && rank < ga_comm_size(c); rank++) {
            int64_t one = elements(&arrays[i], false);
            GA_TRY(ga_comm_broadcast(c, &one, sizeof one, rank, e));
            held += one;
        }
        if (arrays[i].shard && held != expected)
            return ga_fail(e, GA_BUG, "%s and so on: the ranks hold %lld elements together, the array has %lld",
                           ga_param_name(arrays[i].params, 0, arrays[i].suffix, name), (long long)held,
                           (long long)expected);
    }
    return GA_OK;
}
