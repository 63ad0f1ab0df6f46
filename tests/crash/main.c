/* main.c: tries every state that a power failure may leave of a save: a run that starts then must find
 * the last acknowledged checkpoint or a later whole one, and be able to save. Then tries wrong protocols,
 * which must fail (variants.h).
 * usage: crash [all]    all: more states of each trace, and all violations of the variants counted */
#define _GNU_SOURCE
#include "../unit/ckpt_run.h"
#include "states.h"
#include "variants.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAVES = 16, FURTHER = 1000 };

typedef struct {
    int64_t cycle;
    int r;
} moment;

typedef struct {
    const char *name;
    int keep;
    bool exchange, divided;
    moment saves[6]; /* up to the first with cycle 0 */
} scenario;

static const scenario scenarios[] = {
    {"keep 2", 2, true, false, {{1, 0}, {2, 0}, {3, 0}, {4, 0}}},
    {"keep 1", 1, true, false, {{1, 0}, {2, 0}, {3, 0}}},
    {"inside a cycle", 1, true, false, {{1, 0}, {1, 2}, {2, 0}, {2, 3}}},
    {"the same cycle again", 2, true, false, {{1, 0}, {2, 0}, {2, 0}, {3, 0}}},
    {"again, without exchange", 1, false, false, {{1, 0}, {1, 0}, {1, 0}, {2, 0}}},
    {"divided", 1, true, true, {{1, 0}, {1, 2}, {2, 0}}},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static moment saved[SAVES]; /* of save id */
static trace recorded;
static op changed[TRACE_OPS];

static void give_up(const char *what, const ga_err *e) {
    printf("crash: %s: %s\n", what, e->msg);
    exit(2);
}

/* -- loading from a state ------------------------------------------------------------------------ */

static bool holds(const run *r, int64_t id, bool gradient) {
    static run expected;
    run_fill(&expected, id);
    for (int p = 0; p < 2; p++)
        for (int l = 0; l < params[p].count; l++)
            for (int64_t i = 0; i < params[p].n; i++) {
                int64_t at = ga_layout_index(&params[p], l, i);
                if (r->w[at] != expected.w[at] || r->m[at] != expected.m[at]) return false;
                if (gradient && r->g[at] != expected.g[at]) return false;
            }
    return true;
}

/* The id of the save that `latest` names, or FOUND_NONE, FOUND_DAMAGED. */
static int64_t load(run *r, const char *folder) {
    char path[GA_PATH_MAX];
    ga_ckpt_state now = r->state, back;
    memset(r->w, 0, sizeof r->w);
    if (ga_ckpt_find_newest(folder, path, NULL) < 0) return FOUND_NONE;
    if (ga_ckpt_load(path, &r->config, &now, &back, NULL) < 0) return FOUND_DAMAGED;
    int64_t id = (int64_t)r->w[0];
    if (id < 1 || !holds(r, id, back.r > 0)) return FOUND_DAMAGED;
    bool counted = id == FURTHER || (back.cycle == saved[id].cycle && back.r == saved[id].r);
    return counted ? id : FOUND_DAMAGED;
}

/* The run after the failure: the id that it loads; FOUND_DAMAGED if it cannot save. */
static int64_t find(const char *root) {
    char folder[512];
    struct stat st;
    run r;
    snprintf(folder, sizeof folder, "%s/deep/er", root);
    if (run_open(&r, folder, 1, NULL) < 0) return FOUND_STUCK;
    int64_t id = stat(folder, &st) == 0 ? load(&r, folder) : FOUND_NONE;
    bool usable = ga_ckpt_open(&r.ckpt, &r.config, &r.arena, NULL) == 0 && load(&r, folder) == id;
    r.state.r = 0;
    run_count(&r, FURTHER);
    run_fill(&r, FURTHER);
    usable = usable && ga_ckpt_save(r.ckpt, &r.state, NULL, NULL) == 0 && load(&r, folder) == FURTHER;
    run_end(&r);
    return usable || id == FOUND_DAMAGED ? id : FOUND_STUCK;
}

/* -- traces -------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void record(const scenario *s, const char *root) {
    char folder[512];
    ga_err e;
    run r;
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* the last state */
    if (mkdir(root, 0777)) give_up(root, &(ga_err){0, "cannot be made"});
    snprintf(folder, sizeof folder, "%s/deep/er", root);
    trace_set_exchange(s->exchange);
    trace_start(&recorded, root);
    if (run_open(&r, folder, s->keep, &e) < 0) give_up(s->name, &e);
    if (s->divided) run_divide(&r);
    if (ga_ckpt_open(&r.ckpt, &r.config, &r.arena, &e) < 0) give_up(s->name, &e);
    for (int i = 0; s->saves[i].cycle > 0; i++) {
        saved[i + 1] = s->saves[i];
        r.state.r = s->saves[i].r;
        run_count(&r, s->saves[i].cycle);
        run_fill(&r, i + 1);
        if (ga_ckpt_save(r.ckpt, &r.state, NULL, &e) < 0) give_up(s->name, &e);
        trace_ack(i + 1);
    }
    trace_stop();
    trace_set_exchange(true);
    run_end(&r);
}

static bool try_variants(const scenario *s, const effort *how, int *caught, int *harmful) {
    bool right = true;
    for (int i = 0; i < variant_count; i++) {
        const variant *v = &variants[i];
        tally found;
        int count = recorded.count;
        if (strcmp(v->scenario, s->name) != 0) continue;
        memcpy(changed, recorded.ops, sizeof *changed * (size_t)count);
        v->change(&recorded, changed, &count);
        states_try(&recorded, changed, count, how, &found);
        bool seen = found.violations > 0;
        *harmful += v->harmful;
        *caught += v->harmful && seen;
        right = right && seen == v->harmful;
        printf("  %s %s: %lld states, %lld violations%s%s\n",
               seen == v->harmful ? (seen ? "caught" : "harmless") : "WRONG", v->name,
               (long long)found.states, (long long)found.violations, seen ? ", first " : "",
               found.first);
    }
    return right;
}

/* Hides stderr, on which rejected checkpoints would be named thousands of times. */
static void silence(void) {
    int fd = open("/dev/null", O_WRONLY);
    if (fd >= 0) dup2(fd, 2);
}

int main(int argc, char **argv) {
    bool all = argc > 1 && strcmp(argv[1], "all") == 0, right = true;
    char base[64] = "/dev/shm/gagen-crash-XXXXXX", root[128];
    int caught = 0, harmful = 0;
    tally sum = {0};
    if (!mkdtemp(base)) {
        strcpy(base, "/tmp/gagen-crash-XXXXXX");
        if (!mkdtemp(base)) give_up(base, &(ga_err){0, "cannot be made"});
    }
    snprintf(root, sizeof root, "%s/state", base);
    effort how = {all ? 10 : 5, all ? 200 : 4, false, root, find};
    setvbuf(stdout, NULL, _IOLBF, 0);
    silence();
    for (int i = 0; i < SCENARIOS; i++) {
        tally found;
        record(&scenarios[i], root);
        how.first_only = false;
        states_try(&recorded, recorded.ops, recorded.count, &how, &found);
        printf("%s: %d operations, %lld states, %lld different trees, %lld violations%s%s\n",
               scenarios[i].name, recorded.count, (long long)found.states, (long long)found.distinct,
               (long long)found.violations, found.violations ? ", first " : "", found.first);
        sum.states += found.states;
        sum.violations += found.violations;
        how.first_only = !all;
        right = try_variants(&scenarios[i], &how, &caught, &harmful) && right;
    }
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    printf("{\"test\":\"crash\",\"states\":%lld,\"violations\":%lld,\"variants\":%d,\"caught\":%d}\n",
           (long long)sum.states, (long long)sum.violations, harmful, caught);
    return sum.violations > 0 || !right;
}
