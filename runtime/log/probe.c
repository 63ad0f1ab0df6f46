/* probe.c: see probe.h. The header of a dump is written first; the values follow in any order. */
#include "log/probe.h"

#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct ga_probe_use {
    int64_t calls;
    double seconds, least; /* of all calls, of the shortest one */
} ga_probe_use;

struct ga_probe {
    ga_probe_config c;
    ga_arena memory;
    ga_probe_use *use; /* of each kernel */
    void *room;
    double begun;
    int64_t cycle, micro, first_cycle;
    int k;
    int fd;       /* of the present file; -1: none */
    int64_t data; /* offset of its values */
    bool failed;
    char path[4096];
};

static size_t tensor_bytes(const ga_probe_config *c, int i) {
    return (size_t)c->tensors[i].n * ga_dtype_bytes(c->dtype);
}

int ga_probe_open(ga_probe **out, const ga_probe_config *c, ga_err *e) {
    size_t largest = 0;
    *out = NULL;
    if (c->dump) GA_TRY(ga_file_folder(c->dump, "--dump", e));
    for (int i = 0; i < c->tensor_count; i++)
        if (tensor_bytes(c, i) > largest) largest = tensor_bytes(c, i);
    const size_t use = sizeof(ga_probe_use) * (size_t)c->kernel_count;
    const size_t bytes = ga_padded(sizeof(ga_probe)) + ga_padded(use) + ga_padded(largest);
    ga_arena a;
    GA_TRY(ga_arena_open(&a, "probe", (bytes + 4095) / 4096 * 4096, e));
    ga_probe *p = ga_take(&a, sizeof *p, 64, e);
    if (!p) return GA_BUG;
    p->use = ga_take(&a, use, 64, e);
    p->room = ga_take(&a, largest, 64, e);
    if (!p->use || !p->room) return GA_BUG;
    p->c = *c;
    p->memory = a;
    p->first_cycle = p->k = p->fd = -1;
    *out = p;
    return 0;
}

static int close_file(ga_probe *p, ga_err *e) {
    if (p->fd < 0) return 0;
    const int failed = close(p->fd);
    p->fd = -1;
    return failed ? ga_fail(e, GA_ENVIRONMENT, "%s: close failed: %s", p->path, strerror(errno)) : 0;
}

void ga_probe_close(ga_probe *p) {
    if (!p) return;
    close_file(p, NULL);
    ga_arena a = p->memory;
    ga_arena_close(&a);
}

static int begin_file(ga_probe *p, ga_err *e) {
    const ga_probe_config *c = &p->c;
    const ga_array all = {c->tensors, c->dumped, "", c->dtype, NULL, NULL, NULL};
    char rank[32] = "";
    if (c->rank > 0) snprintf(rank, sizeof rank, "-rank%d", c->rank);
    if (snprintf(p->path, sizeof p->path, "%s/micro-%d%s.safetensors", c->dump, p->k, rank) >=
        (int)sizeof p->path)
        return ga_fail(e, GA_INPUT, "--dump %.64s...: the path is too long", c->dump);
    p->fd = open(p->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (p->fd < 0)
        return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be created: %s", p->path, strerror(errno));
    return ga_safetensors_begin(p->fd, p->path, &all, 1, NULL, 0, &p->data, e);
}

int ga_probe_micro(ga_probe *p, int64_t cycle, int64_t micro, int k, ga_err *e) {
    GA_TRY(close_file(p, e));
    p->cycle = cycle;
    p->micro = micro;
    p->k = k;
    if (k < 0) return 0;
    if (p->first_cycle < 0) p->first_cycle = cycle;
    return p->c.dump && cycle == p->first_cycle ? begin_file(p, e) : 0;
}

void ga_probe_begin(ga_probe *p) {
    if (p && p->c.profile) p->begun = ga_clock();
}

void ga_probe_end(ga_probe *p, int kernel) {
    if (p && p->c.profile) ga_probe_took(p, kernel, ga_clock() - p->begun);
}

void ga_probe_took(ga_probe *p, int kernel, double seconds) {
    ga_probe_use *u = &p->use[kernel];
    if (u->calls++ == 0 || seconds < u->least) u->least = seconds;
    u->seconds += seconds;
}

bool ga_probe_wants(const ga_probe *p) {
    return p && !p->failed && (p->fd >= 0 || p->c.check_finite);
}

static int check(ga_probe *p, int kernel, const ga_probe_value *v, ga_err *e) {
    const ga_param *t = &p->c.tensors[v->tensor];
    int64_t i = 0;
    while (i < t->n && isfinite(ga_get(v->at, p->c.dtype, i))) i++;
    if (i == t->n) return 0;
    char name[GA_NAME_MAX], where[64];
    const double x = ga_get(v->at, p->c.dtype, i);
    snprintf(where, sizeof where, "micro-step %d (%lld in all)", p->k, (long long)p->micro);
    p->failed = true;
    return ga_fail(e, GA_NONFINITE, "cycle %lld, %s: %s, element %lld of %lld, is %s: the first value "
                   "that is not finite; written by %s (%s)", (long long)p->cycle,
                   p->k < 0 ? "between micro-steps" : where,
                   ga_param_name(t, v->iteration, "", name), (long long)i, (long long)t->n,
                   isnan(x) ? "nan" : x > 0 ? "inf" : "-inf", p->c.kernels[kernel].name,
                   p->c.kernels[kernel].at);
}

static int dump(ga_probe *p, const ga_probe_value *v, ga_err *e) {
    const ga_param *t = &p->c.tensors[v->tensor];
    const int64_t size = (int64_t)ga_dtype_bytes(p->c.dtype);
    const int64_t to = p->data + ga_layout_index(t, v->iteration, 0) * size;
    const int rc = ga_file_write(p->fd, v->at, t->n * size, to);
    return rc ? ga_fail(e, GA_ENVIRONMENT, "%s: writing failed: %s", p->path, strerror(rc)) : 0;
}

int ga_probe_see(ga_probe *p, int kernel, const ga_probe_value *v, ga_err *e) {
    if (p->fd >= 0 && v->tensor < p->c.dumped) GA_TRY(dump(p, v, e));
    return p->c.check_finite ? check(p, kernel, v, e) : 0;
}

void *ga_probe_room(ga_probe *p) {
    return p->room;
}

/* The kernel that follows `before` when sorted from the longest time (-1: the first); -1 if none is left. */
static int next_longest(const ga_probe *p, int before) {
    int best = -1;
    for (int i = 0; i < p->c.kernel_count; i++) {
        const ga_probe_use *u = &p->use[i];
        if (u->calls == 0) continue;
        if (before >= 0 && (u->seconds > p->use[before].seconds ||
                            (u->seconds == p->use[before].seconds && i <= before)))
            continue;
        if (best < 0 || u->seconds > p->use[best].seconds) best = i;
    }
    return best;
}

int ga_probe_report(const ga_probe *p, ga_err *e) {
    if (!p->c.profile) return GA_OK;
    double total = 0;
    int width = 6;
    for (int i = 0; i < p->c.kernel_count; i++) {
        const int n = (int)strlen(p->c.kernels[i].name);
        if (p->use[i].calls > 0 && n > width) width = n;
        total += p->use[i].seconds;
    }
    printf("%-*s %10s %10s %6s %9s %9s %10s  %s\n", width, "kernel", "calls", "ms", "%", "GFLOP/s", "GB/s",
           "least us", "from");
    for (int i = next_longest(p, -1); i >= 0; i = next_longest(p, i)) {
        const ga_probe_kernel *k = &p->c.kernels[i];
        const ga_probe_use *u = &p->use[i];
        const double per_second = u->seconds > 0 ? (double)u->calls / u->seconds : 0;
        printf("%-*s %10lld %10.3f %6.1f %9.3g %9.3g %10.3f  %s\n", width, k->name, (long long)u->calls,
               1e3 * u->seconds, total > 0 ? 100 * u->seconds / total : 0,
               1e-9 * k->flops * per_second, 1e-9 * k->bytes * per_second, 1e6 * u->least,
               k->at);
    }
    return ga_flush_stdout(e);
}
