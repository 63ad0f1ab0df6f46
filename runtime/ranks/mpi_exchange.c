/* mpi_exchange.c: see mpi_exchange.h. A sum is an all-to-all of parts and additions in the order of the ranks: faster
 * than MPI's reductions, with sums that no library chooses, and in 16 bits on the wire. */
#include "ranks/mpi_exchange.h"

enum { ENDED = 1, MOVED = 2 };

int ga_mpi_check(int rank, int rc, const char *operation, ga_err *e) {
    if (rc == MPI_SUCCESS) return GA_OK;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return ga_fail(e, GA_ENVIRONMENT, "rank %d: MPI failed in %s: %.*s", rank, operation, n < 300 ? n : 300, text);
}

MPI_Datatype ga_mpi_type(ga_dtype t) {
    switch (t) {
    case GA_F32: return MPI_FLOAT;
    case GA_F64: return MPI_DOUBLE;
    case GA_I32: return MPI_INT32_T;
    case GA_I64: return MPI_INT64_T;
    default: return MPI_UINT16_T; /* GA_BF16 and GA_F16 travel as they are */
    }
}

/* Elements of the cut of rank i that are in the present piece. */
static int in_piece(const ga_mpi_wire *w, const ga_mpi_ranks *g, int i) {
    const int64_t left = ga_cut(w->x, i + 1, g->size) - ga_cut(w->x, i, g->size) - w->done;
    return (int)(left < 0 ? 0 : left < w->piece ? left : w->piece);
}

static int64_t longest_cut(const ga_exchange *x, int size) {
    int64_t longest = 0;
    for (int i = 0; i < size; i++) {
        const int64_t n = ga_cut(x, i + 1, size) - ga_cut(x, i, size);
        if (n > longest) longest = n;
    }
    return longest;
}

/* Parts to the ranks that own them. */
static int scatter(ga_mpi_wire *w, const ga_mpi_ranks *g, ga_err *e) {
    const ga_exchange *x = w->x;
    const size_t bytes = ga_dtype_bytes(x->wire);
    const bool narrow = x->wire != x->type;
    char *rounded = w->base + g->wire_bytes / 2;
    const int own = in_piece(w, g, g->rank);
    int sent = 0, received = 0;
    for (int i = 0; i < g->size; i++) {
        const int64_t from = ga_cut(x, i, g->size) + w->done;
        const int n = in_piece(w, g, i);
        if (narrow) ga_exchange_narrow(rounded + (size_t)sent * bytes, (const float *)x->values + from, n, x->wire);
        w->send[i] = i == g->rank ? 0 : n;
        w->send_at[i] = narrow ? sent : (int)from;
        w->receive[i] = i == g->rank ? 0 : own;
        w->receive_at[i] = received;
        sent += n;
        received += w->receive[i];
    }
    w->gathers = false;
    const MPI_Datatype type = ga_mpi_type(x->wire);
    return ga_mpi_check(g->rank, MPI_Ialltoallv(narrow ? (const void *)rounded : x->values, w->send, w->send_at, type,
                                                w->base, w->receive, w->receive_at, type, g->wires[w->number],
                                                &w->request), "all-to-all", e);
}

/* Sums the parts of the own cut in the order of the ranks. */
static void sum_parts(const ga_mpi_wire *w, const ga_mpi_ranks *g) {
    const ga_exchange *x = w->x;
    const size_t bytes = ga_dtype_bytes(x->wire), whole = ga_dtype_bytes(x->type);
    const int own = in_piece(w, g, g->rank);
    char *mine = (char *)x->values + (size_t)(ga_cut(x, g->rank, g->size) + w->done) * whole;
    const char *rounded = w->base + g->wire_bytes / 2;
    for (int i = 0; i < g->rank; i++) rounded += (size_t)in_piece(w, g, i) * bytes;
    for (int i = 0; i < g->size; i++) g->parts[i] = w->base + (size_t)w->receive_at[i] * bytes;
    g->parts[g->rank] = x->wire == x->type ? mine : rounded;
    char *out = x->shard ? (char *)x->shard + (size_t)w->done * whole : mine;
    ga_exchange_sum(out, x->shard && x->add, g->parts, g->size, own, x->type, x->wire);
}

/* Each cut to all ranks. */
static int gather(ga_mpi_wire *w, const ga_mpi_ranks *g, ga_err *e) {
    const ga_exchange *x = w->x;
    for (int i = 0; i < g->size; i++) {
        w->receive[i] = in_piece(w, g, i);
        w->receive_at[i] = (int)(ga_cut(x, i, g->size) + w->done);
    }
    w->gathers = true;
    const bool apart = x->kind == GA_ALL_GATHER && x->shard;    /* the own cut */
    const MPI_Datatype type = ga_mpi_type(x->type);
    return ga_mpi_check(g->rank, MPI_Iallgatherv(apart ? x->shard : MPI_IN_PLACE, apart ? w->receive[g->rank] : 0,
                                                 apart ? type : MPI_DATATYPE_NULL, x->values, w->receive,
                                                 w->receive_at, type, g->wires[w->number], &w->request),
                        "all-gather", e);
}

/* Begins the next piece, if there is one. */
static int next_piece(ga_mpi_wire *w, const ga_mpi_ranks *g, ga_err *e) {
    if (w->done >= longest_cut(w->x, g->size)) {
        w->x = NULL;
        return ENDED;
    }
    const int code = w->x->kind == GA_ALL_GATHER ? gather(w, g, e) : scatter(w, g, e);
    if (code < 0) w->x = NULL;
    return code < 0 ? code : MOVED;
}

int ga_mpi_begin(ga_mpi_wire *w, const ga_mpi_ranks *g, const ga_exchange *x, ga_err *e) {
    if (x->group > 0 && g->size == 1) return ENDED; /* alone in its list; others of the group use the wire */
    const size_t room = x->wire == x->type ? g->wire_bytes : g->wire_bytes / 2;
    const int64_t most = (int64_t)(room / ga_dtype_bytes(x->wire)) / g->size / GA_CUT * GA_CUT;
    if (most == 0 && x->kind != GA_ALL_GATHER)
        return ga_fail(e, GA_BUG, "exchange over %d ranks: wires of %zu bytes are too small", g->size, g->wire_bytes);
    w->x = x;
    w->ranks = g;
    w->done = 0;
    w->piece = x->kind == GA_ALL_GATHER ? longest_cut(x, g->size) : most;
    return next_piece(w, g, e);
}

int ga_mpi_advance(ga_mpi_wire *w, ga_err *e) {
    const ga_mpi_ranks *g = w->ranks;
    int done = 0, code = ga_mpi_check(g->rank, MPI_Test(&w->request, &done, MPI_STATUS_IGNORE), "an exchange", e);
    if (code == GA_OK && !done) return 0;
    if (code == GA_OK && !w->gathers) {
        sum_parts(w, g);
        if (w->x->kind == GA_ALL_REDUCE) {
            code = gather(w, g, e);
            if (code == GA_OK) return MOVED;
        }
    }
    if (code < 0) {
        w->x = NULL;
        return code;
    }
    w->done += w->piece;
    return next_piece(w, g, e);
}
