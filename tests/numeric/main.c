/* check: checks an emitted program (precision f64, named "probe") with drive.h.
 *   check gradients [FILE]   gradient against differences, and the program's own cycle against the
 *                            roles; the gradient to FILE: doubles in the order of parameters
 *   check save FILE          the gradient to FILE, nothing compared; prints "name elements" per
 *                            tensor
 *   check updates FILE       FILE: numbers n u, n weights, u gradients of n: the first n elements
 *                            of every tensor after each of u updates
 *   check reports FILE       of a schedule that depends on evaluations (-DREPORTS): the rate after each of
 *                            the metrics in FILE
 *   check shards CUT         one update as a whole and in two parts, bit by bit
 * Environment: THREADS (1), SEED (1), CLASSES (3); CLIP: the spec's largest norm; BREAK: an element
 * of the flat space whose gradient is changed by a millionth, to test that the check finds it. Exit 0:
 * all agree; 1: a disagreement; else an error. */
#include "differences.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number_from(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* -- gradients --------------------------------------------------------------------------------- */

static int save(const model *m, const char *path, bool names, ga_err *e) {
    FILE *f = fopen(path, "wb");
    if (!f) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written", path);
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        if (!t.trained) continue;
        fwrite(m->flat_g + t.at, sizeof(real), (size_t)t.n, f);
        if (names) printf("%s %lld\n", t.name, (long long)t.n);
    }
    if (fclose(f) != 0) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written", path);
    return 0;
}

/* Norm and factor of the cycle's boundary, from the gradient of the mean loss. */
static bool boundary_agrees(const model *m) {
    const char *clip = getenv("CLIP");
    double squares = 0, factor = m->nominal / m->step.weight;
    for (int64_t i = 0; i < TRAINED; i++) squares += m->flat_g[i] * m->flat_g[i];
    const double norm = sqrt(squares);
    if (clip && atof(clip) < norm + 1e-6) factor *= atof(clip) / (norm + 1e-6);
    const bool same = fabs(norm - m->step.grad_norm) <= 1e-13 * norm &&
                      fabs(factor - m->step.factor) <= 1e-13 * factor;
    if (!same)
        printf("the boundary has norm %.17g and factor %.17g, the gradient %.17g and %.17g\n",
               m->step.grad_norm, m->step.factor, norm, factor);
    return same;
}

static int same_by_cycle(model *m, ga_err *e) {
    static real roles[TRAINED];
    memcpy(roles, m->flat_g, sizeof roles);
    GA_TRY(drive_cycle(m, e));
    if (!boundary_agrees(m)) return 1;
    for (int64_t i = 0; i < TRAINED; i++) {
        if (memcmp(&roles[i], &m->flat_g[i], sizeof(real)) == 0) continue;
        printf("element %lld of the flat space: %.17g by roles, %.17g by the cycle\n", (long long)i,
               roles[i], m->flat_g[i]);
        return 1;
    }
    return 0;
}

static int check_gradients(model *m, const char *path, ga_err *e) {
    GA_TRY(drive_gradient(m, e));
    if (path) GA_TRY(save(m, path, false, e));
    const int broken = number_from("BREAK", -1);
    if (broken >= 0 && broken < TRAINED) m->flat_g[broken] *= 1 + 1e-6;
    const int wrong = differences_check(m, e);
    if (wrong != 0) return wrong;
    return same_by_cycle(m, e);
}

static int save_gradient(model *m, const char *path, ga_err *e) {
    GA_TRY(drive_gradient(m, e));
    return save(m, path, true, e);
}

/* -- updates ----------------------------------------------------------------------------------- */

static void set(const model *m, real *flat, const double *x, int n) {
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        for (int64_t j = 0; j < t.n; j++) flat[t.at + j] = j < n ? x[j] : 0;
    }
}

static void print_tensors(const model *m, int n) {
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        printf("%s w", t.name);
        for (int j = 0; j < n && j < t.n; j++) printf(" %.17g", m->flat_w[t.at + j]);
        for (int s = 0; s < STATES; s++) {
            const real *x = m->saved.state[s].base;
            printf(" %s", m->saved.state[s].suffix + 1);
            for (int j = 0; j < n && j < t.n; j++) printf(" %.17g", x[t.at + j]);
        }
        printf("\n");
    }
}

static int check_updates(model *m, const char *path, ga_err *e) {
    double x[64];
    int n = 0, updates = 0;
    FILE *f = fopen(path, "r");
    if (!f) return ga_fail(e, GA_INPUT, "%s: cannot be read", path);
    bool whole = fscanf(f, "%d %d", &n, &updates) == 2 && n > 0 && n <= 64;
    for (int k = -1; whole && k < updates; k++) {
        for (int i = 0; i < n; i++) whole = whole && fscanf(f, "%lf", &x[i]) == 1;
        set(m, k < 0 ? m->flat_w : m->flat_g, x, n);
        if (k < 0) continue;
        GA_TRY(drive_boundary(m, e));
        printf("update %d lr %.17g norm %.17g\n", k + 1, m->step.lr, m->step.grad_norm);
        print_tensors(m, n);
    }
    fclose(f);
    return whole ? 0 : ga_fail(e, GA_INPUT, "%s: too few numbers", path);
}

/* -- reports ------------------------------------------------------------------------------------ */

#ifdef REPORTS
static int check_reports(model *m, const char *path, ga_err *e) {
    FILE *f = fopen(path, "r");
    double metric;
    if (!f) return ga_fail(e, GA_INPUT, "%s: cannot be read", path);
    while (fscanf(f, "%lf", &metric) == 1) {
        GA_TRY(probe_model_report(m, metric, e));
        printf("%.17g\n", probe_model_lr(m, 0));
    }
    fclose(f);
    return 0;
}
#endif

/* -- shards ------------------------------------------------------------------------------------ */

enum { ARRAYS = 1 + STATES };

static real *array(model *m, int i) { return i == 0 ? m->flat_w : m->saved.state[i - 1].base; }

static void copy_out(model *m, real to[ARRAYS][TRAINED]) {
    for (int i = 0; i < ARRAYS; i++) memcpy(to[i], array(m, i), sizeof to[i]);
}

static int check_shards(model *m, const char *cut, ga_err *e) {
    static real before[ARRAYS][TRAINED], whole[ARRAYS][TRAINED], parts[ARRAYS][TRAINED];
    const int64_t at = atoll(cut);
    GA_TRY(drive_cycle(m, e)); /* makes the state differ from 0 */
    copy_out(m, before);
    GA_TRY(drive_boundary(m, e));
    copy_out(m, whole);
    for (int i = 0; i < ARRAYS; i++) memcpy(array(m, i), before[i], sizeof before[i]);
    GA_TRY(drive_sweep(m, 0, at, e));
    GA_TRY(drive_sweep(m, at, TRAINED, e));
    copy_out(m, parts);
    for (int i = 0; i < ARRAYS; i++) {
        const bool same = memcmp(whole[i], parts[i], sizeof parts[i]) == 0;
        const bool moved = memcmp(whole[i], before[i], sizeof before[i]) != 0;
        if (same && moved) continue;
        printf("array %d: %s\n", i,
               moved ? "two parts differ from the whole" : "the update changed nothing");
        return 1;
    }
    return 0;
}

static int run_command(model *m, const char *name, const char *argument, ga_err *e) {
    GA_TRY(drive_open(m, number_from("THREADS", 1), (uint64_t)number_from("SEED", 1),
                      number_from("CLASSES", 3), e));
    if (strcmp(name, "gradients") == 0) return check_gradients(m, argument, e);
    if (argument && strcmp(name, "save") == 0) return save_gradient(m, argument, e);
    if (argument && strcmp(name, "updates") == 0) return check_updates(m, argument, e);
#ifdef REPORTS
    if (argument && strcmp(name, "reports") == 0) return check_reports(m, argument, e);
#endif
    if (argument && strcmp(name, "shards") == 0) return check_shards(m, argument, e);
    return ga_fail(e, GA_INPUT, "check gradients|save|updates|reports|shards [ARGUMENT]");
}

int main(int argc, char **argv) {
    static model m;
    ga_err e = {0};
    const int code = run_command(&m, argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : NULL, &e);
    if (code < 0) fprintf(stderr, "check: %s\n", e.msg);
    probe_model_close(&m);
    return code < 0 ? 1 - code : code > 0;
}
