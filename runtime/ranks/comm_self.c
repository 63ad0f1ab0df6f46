/* comm_self.c: a group of one process: a sum over the ranks is the value itself, and is counted. Exchanges are in
 * self_exchange.c, which programs without ranks do not have. */
#include "ranks/comm.h"
#include "ranks/launcher.h"
#include "ranks/self_exchange.h"

struct ga_comm {
    ga_comm_counts counts;
    const ga_group *groups;
    int group_count;
};

int ga_comm_open(ga_comm **out, ga_arena *a, const ga_arena *wires, ga_err *e) {
    (void)wires;
    *out = NULL;
    GA_TRY(ga_launcher_check(
        1, "this program was built for one: start it once; several need parallel in the spec, and make COMM=mpi", e));
    *out = ga_take(a, sizeof(ga_comm), 64, e);
    return *out ? GA_OK : GA_BUG;
}

void ga_comm_close(ga_comm *c) {
    (void)c;
}

int ga_comm_rank(const ga_comm *c) {
    (void)c;
    return 0;
}

int ga_comm_size(const ga_comm *c) {
    (void)c;
    return 1;
}

int ga_comm_local_size(const ga_comm *c) {
    (void)c;
    return 1;
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    (void)buf, (void)e;
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return GA_OK;
}

int ga_comm_gather(ga_comm *c, double *all, size_t n, ga_err *e) {
    (void)all, (void)e;
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * sizeof(double));
    return GA_OK;
}

int ga_comm_divide(ga_comm *c, const ga_group *groups, int count, ga_err *e) {
    (void)e;
    c->groups = groups;
    c->group_count = count;
    return GA_OK;
}

const ga_group *ga_comm_group(const ga_comm *c, int group) {
    return group >= 1 && group <= c->group_count ? &c->groups[group - 1] : NULL;
}

int ga_comm_group_rank(const ga_comm *c, int group) {
    (void)c, (void)group;
    return 0;
}

int ga_comm_group_size(const ga_comm *c, int group) {
    (void)c, (void)group;
    return 1;
}

int ga_comm_all_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_err *e) {
    (void)group;
    return ga_comm_all_reduce(c, buf, n, t, e);
}

int ga_comm_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int root, ga_err *e) {
    (void)group;
    return ga_comm_broadcast(c, buf, bytes, root, e);
}

ga_comm_counts *ga_self_counts(ga_comm *c) {
    return &c->counts;
}

int ga_comm_wait(ga_comm *c, int request, ga_err *e) {
    (void)c, (void)request, (void)e;
    return GA_OK;
}

int ga_comm_small(ga_comm *c, double *values, size_t n, size_t largest, ga_err *e) {
    (void)values, (void)n, (void)largest, (void)e;
    c->counts.small++;
    return GA_OK;
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    (void)c, (void)buf, (void)bytes, (void)root, (void)e;
    return GA_OK;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    (void)c, (void)e;
    return GA_OK;
}

int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    (void)c, (void)e;
    *low = value;
    *rank = 0;
    return GA_OK;
}

void ga_comm_abort(ga_comm *c, int exit_code) {
    (void)c, (void)exit_code;
}

ga_comm_counts ga_comm_counted(const ga_comm *c) {
    return c->counts;
}

void ga_comm_says(ga_comm *c, ga_doing doing, int64_t cycle) {
    (void)c, (void)doing, (void)cycle;
}

void ga_comm_saved(ga_comm *c, const char *checkpoint) {
    (void)c, (void)checkpoint;
}

ga_pulse *ga_comm_pulse(ga_comm *c) {
    (void)c;
    return NULL;
}
