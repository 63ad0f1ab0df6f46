/* shards.c: see shards.h. */
#include "files/shards.h"

#include "files/file.h"

#include <string.h>

enum { PIECE = 1 << 14 };

/* A tensor on its way to rank 0. */
typedef struct {
    ga_comm *comm;
    const ga_array *array;
    const ga_param *param;
    int l;
    int (*take)(void *to, const void *values, int64_t at, int64_t bytes); /* at byte `at` of it; 0 or an errno */
    void *to;
    int failed; /* the errno of the first call that failed; there are none behind it */
} transfer;

/* Elements that travel together; none: the end of a rank's part. */
typedef struct {
    int64_t i, n;
    char values[PIECE];
} parcel;

static void take(transfer *t, const void *values, int64_t i, int64_t n) {
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    if (!t->failed) t->failed = t->take(t->to, values, i * size, n * size);
}

/* Fills in the elements behind those of the last parcel. */
static void next_parcel(const transfer *t, ga_held *h, int64_t *done, parcel *p) {
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    if (*done == h->n) {
        *done = 0;
        if (!ga_array_next(t->array, t->param, t->l, h)) *h = (ga_held){t->param->n, 0, 0};
    }
    p->i = h->i + *done;
    p->n = h->n - *done < PIECE / size ? h->n - *done : PIECE / size;
    if (p->n > 0) memcpy(p->values, (const char *)t->array->base + (h->at + *done) * size, (size_t)(p->n * size));
    *done += p->n;
}

/* Rank 0 takes what it holds, then what each rank sends in its turn. */
static int move(transfer *t, ga_err *e) {
    const int rank = ga_comm_rank(t->comm);
    const int64_t size = (int64_t)ga_dtype_bytes(t->array->dtype);
    for (ga_held h = {0}; rank == 0 && ga_array_next(t->array, t->param, t->l, &h);)
        take(t, (const char *)t->array->base + h.at * size, h.i, h.n);
    for (int from = 1; t->array->shard && from < ga_comm_size(t->comm); from++) {
        parcel p = {0};
        ga_held h = {0};
        int64_t done = 0;
        do {
            if (rank == from) next_parcel(t, &h, &done, &p);
            GA_TRY(ga_comm_broadcast(t->comm, &p, sizeof p, from, e));
            if (rank == 0 && p.n > 0) take(t, p.values, p.i, p.n);
        } while (p.n > 0);
    }
    return GA_OK;
}

static int take_to_memory(void *to, const void *values, int64_t at, int64_t bytes) {
    memcpy((char *)to + at, values, (size_t)bytes);
    return 0;
}

int ga_shard_collect(ga_comm *c, const ga_array *a, const ga_param *p, int l, void *out, ga_err *e) {
    return move(&(transfer){c, a, p, l, take_to_memory, out, 0}, e);
}

/* Byte 0 of a tensor lies at byte `at` of the file. */
typedef struct {
    int fd;
    int64_t at;
} file_place;

static int take_to_file(void *to, const void *values, int64_t at, int64_t bytes) {
    const file_place *place = to;
    return ga_file_write(place->fd, values, bytes, place->at + at);
}

/* Moves all values to the file, which only rank 0 has. A failure of writing is found by all at the end. */
static int move_all(ga_comm *c, const ga_new_file *f, int64_t data, const ga_array *arrays, int count, ga_err *e) {
    file_place place = {f->fd, data};
    int failed = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++) {
                const ga_param *p = &arrays[i].params[k];
                transfer t = {c, &arrays[i], p, l, take_to_file, &place, failed};
                GA_TRY(move(&t, e));
                failed = t.failed;
                place.at += p->n * (int64_t)ga_dtype_bytes(arrays[i].dtype);
            }
    return failed ? ga_fail(e, GA_ENVIRONMENT, "%s: writing failed: %s", f->path, strerror(failed)) : GA_OK;
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
    int code = move_all(c, &f, data, arrays, count, e);
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
