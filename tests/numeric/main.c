/* check: checks an emitted program (precision f64, named "probe") with drive.h.
 *   check gradients [FILE]   gradient against differences, and the program's own cycle against the
 *                            roles; the gradient to FILE: doubles in the order of parameters
 *   check save FILE          the program's own cycle against the roles, and the gradient to FILE; prints
 *                            "name elements" per tensor
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

static int save(model *m, const char *path, bool names, ga_err *e) {
    FILE *f = fopen(path, "wb");
    if (!f) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written", path);
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        if (!t.trained) continue;
        fwrite(drive_gradients(m) + t.at, sizeof(double), (size_t)t.n, f);
        if (names) printf("%s %lld\n", t.name, (long long)t.n);
    }
    if (fclose(f) != 0) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written", path);
    return 0;
}

/* Norm and factor of the cycle's boundary, from the gradient of the mean loss. */
static bool boundary_agrees(model *m) {
    const char *clip = getenv("CLIP");
    const scalars found = drive_scalars(m);
    const double *g = drive_gradients(m);
    double squares = 0, factor = found.nominal / found.weight;
    for (int64_t i = 0; i < drive_trained(); i++) squares += g[i] * g[i];
    const double norm = sqrt(squares);
    if (clip && atof(clip) < norm + 1e-6) factor *= atof(clip) / (norm + 1e-6);
    const bool same = fabs(norm - found.grad_norm) <= 1e-13 * norm &&
                      fabs(factor - found.factor) <= 1e-13 * factor;
    if (!same)
        printf("the boundary has norm %.17g and factor %.17g, the gradient %.17g and %.17g\n",
               found.grad_norm, found.factor, norm, factor);
    return same;
}

static int same_by_cycle(model *m, ga_err *e) {
    const int64_t n = drive_trained();
    const double *g = drive_gradients(m);
    double roles[n];
    memcpy(roles, g, sizeof roles);
    GA_TRY(drive_cycle(m, e));
    if (!boundary_agrees(m)) return 1;
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&roles[i], &g[i], sizeof(double)) == 0) continue;
        printf("element %lld of the flat space: %.17g by roles, %.17g by the cycle\n", (long long)i,
               roles[i], g[i]);
        return 1;
    }
    return 0;
}

static int check_gradients(model *m, const char *path, ga_err *e) {
    GA_TRY(drive_gradient(m, e));
    if (path) GA_TRY(save(m, path, false, e));
    const int broken = number_from("BREAK", -1);
    if (broken >= 0 && broken < drive_trained()) drive_gradients(m)[broken] *= 1 + 1e-6;
    const int wrong = differences_check(m, e);
    if (wrong != 0) return wrong;
    return same_by_cycle(m, e);
}

static int save_gradient(model *m, const char *path, ga_err *e) {
    GA_TRY(drive_gradient(m, e));
    GA_TRY(save(m, path, true, e));
    return same_by_cycle(m, e);
}

/* -- updates ----------------------------------------------------------------------------------- */

static void set(const model *m, double *flat, const double *x, int n) {
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        for (int64_t j = 0; j < t.n; j++) flat[t.at + j] = j < n ? x[j] : 0;
    }
}

static void print_tensors(model *m, int n) {
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        printf("%s w", t.name);
        for (int j = 0; j < n && j < t.n; j++) printf(" %.17g", drive_weights(m)[t.at + j]);
        for (int s = 0; s < drive_states(); s++) {
            const double *x = drive_state(m, s);
            printf(" %s", drive_suffix(m, s) + 1);
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
        set(m, k < 0 ? drive_weights(m) : drive_gradients(m), x, n);
        if (k < 0) continue;
        GA_TRY(drive_boundary(m, e));
        const scalars found = drive_scalars(m);
        printf("update %d lr %.17g norm %.17g\n", k + 1, found.lr, found.grad_norm);
        print_tensors(m, n);
    }
    fclose(f);
    return whole ? 0 : ga_fail(e, GA_INPUT, "%s: too few numbers", path);
}

/* -- reports ------------------------------------------------------------------------------------ */

static int check_reports(model *m, const char *path, ga_err *e) {
    FILE *f = fopen(path, "r");
    double metric, lr;
    int code = 0;
    if (!f) return ga_fail(e, GA_INPUT, "%s: cannot be read", path);
    while (code == 0 && fscanf(f, "%lf", &metric) == 1) {
        code = drive_report(m, metric, &lr, e);
        if (code == 0) printf("%.17g\n", lr);
    }
    fclose(f);
    return code;
}

/* -- shards ------------------------------------------------------------------------------------ */

/* Weights and states of the trained elements; array 0 are the weights. */
static double *array(model *m, int i) { return i == 0 ? drive_weights(m) : drive_state(m, i - 1); }

static void copy_out(model *m, double *to) {
    const int64_t n = drive_trained();
    for (int i = 0; i <= drive_states(); i++) memcpy(to + i * n, array(m, i), (size_t)n * sizeof *to);
}

static int check_shards(model *m, const char *cut, ga_err *e) {
    const int64_t at = atoll(cut), n = drive_trained(), all = n * (1 + drive_states());
    const size_t bytes = (size_t)n * sizeof(double);
    double before[all], whole[all], parts[all];
    GA_TRY(drive_cycle(m, e)); /* makes the state differ from 0 */
    copy_out(m, before);
    GA_TRY(drive_boundary(m, e));
    copy_out(m, whole);
    for (int i = 0; i <= drive_states(); i++) memcpy(array(m, i), before + i * n, bytes);
    GA_TRY(drive_sweep(m, 0, at, e));
    GA_TRY(drive_sweep(m, at, n, e));
    copy_out(m, parts);
    for (int i = 0; i <= drive_states(); i++) {
        const bool same = memcmp(whole + i * n, parts + i * n, bytes) == 0;
        const bool moved = memcmp(whole + i * n, before + i * n, bytes) != 0;
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
    if (argument && strcmp(name, "reports") == 0) return check_reports(m, argument, e);
    if (argument && strcmp(name, "shards") == 0) return check_shards(m, argument, e);
    return ga_fail(e, GA_INPUT, "check gradients|save|updates|reports|shards [ARGUMENT]");
}

int main(int argc, char **argv) {
    model *m = drive_model();
    ga_err e = {0};
    const int code = run_command(m, argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : NULL, &e);
    if (code < 0) fprintf(stderr, "check: %s\n", e.msg);
    drive_close(m);
    return code < 0 ? 1 - code : code > 0;
}
