/* ckpt_run.h: a small run for tests of checkpoints: two parameters, one of them in a region, their
 * optimizer state and gradients. */
#ifndef CKPT_RUN_H
#define CKPT_RUN_H

#include "files/ckpt.h"

#include <string.h>

enum { N = 40 };

static const ga_param params[] = {{"a.weight", 0, 1, 2, {4, 5}, 0, 0, 20},
                                  {"h.%d.b", 0, 2, 1, {8}, 20, 10, 8}};

/* A run: its state, its arrays, its folder. */
typedef struct {
    double w[N], m[N], g[N];
    ga_array model, moment, gradient;
    ga_ckpt_file files[2];
    ga_ckpt_config config;
    ga_ckpt_state state;
    ga_arena arena;
    ga_comm *comm;
    ga_ckpt *ckpt;
    ga_piece pieces[3];
    ga_shard shard;
} run;

/* Fills the arrays with values that depend on `tag`, and differ for different tags. */
static inline void run_fill(run *r, int64_t tag) {
    for (int i = 0; i < N; i++) {
        r->w[i] = (double)tag + i / 64.0;
        r->m[i] = -(double)tag * i;
        r->g[i] = 1.0 / (double)(tag + i + 1);
    }
}

static inline void run_count(run *r, int64_t cycle) {
    r->state.cycle = r->state.update = cycle;
    r->state.micro = 4 * cycle + r->state.r;
}

static inline int run_open(run *r, const char *folder, int keep, ga_err *e) {
    memset(r, 0, sizeof *r);
    r->model = (ga_array){params, 2, "", GA_F64, r->w, NULL, NULL};
    r->moment = (ga_array){params, 2, ".m", GA_F64, r->m, NULL, NULL};
    r->gradient = (ga_array){params, 2, "", GA_F64, r->g, NULL, NULL};
    r->files[0] = (ga_ckpt_file){"model.safetensors", &r->model, 1};
    r->files[1] = (ga_ckpt_file){"optimizer.safetensors", &r->moment, 1};
    r->state = (ga_ckpt_state){.batch = 5,
                               .accumulate = 4,
                               .seed = INT64_MAX,
                               .scale = 1,
                               .world = 1,
                               .version = "1.0",
                               .spec_sha256 = "abc",
                               .target = "c",
                               .profile = "generic",
                               .data_count = 1,
                               .data = {{"digits/\"x\".csv", 123, 0xdeadbeef}}};
    GA_TRY(ga_arena_open(&r->arena, "test", 1 << 17, e));
    GA_TRY(ga_comm_open(&r->comm, &r->arena, NULL, e));
    r->config = (ga_ckpt_config){folder, keep, false, r->files, 2, &r->gradient, 1, r->comm, NULL, false, "saver",
                                 false, false};
    return GA_OK;
}

/* Lets the state and the gradient be in pieces, as with several ranks; each stays at its place. */
static inline void run_divide(run *r) {
    const ga_piece pieces[3] = {{0, 13, 0}, {13, 10, 13}, {23, N - 23, 23}};
    memcpy(r->pieces, pieces, sizeof pieces);
    r->shard = (ga_shard){r->pieces, 3, N};
    r->moment.shard = r->gradient.shard = &r->shard;
}

static inline void run_end(run *r) {
    ga_ckpt_close(r->ckpt);
    ga_comm_close(r->comm);
    ga_arena_close(&r->arena);
}

#endif
