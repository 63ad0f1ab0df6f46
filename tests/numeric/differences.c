/* differences.c: see differences.h.
 * The error of a central difference falls fourfold from step h to h/2, so both are extrapolated. If they
 * disagree, the loss has a kink nearby (relu, max), and the step is reduced until it does not cross the
 * kink. If they agree but differ from the gradient, the gradient is wrong. */
#include "differences.h"

#include <math.h>
#include <stdio.h>

enum { ALL = 64, ELEMENTS = 16, DIRECTIONS = 8, SHOWN = 5, SHRINKS = 3 };

/* A line through the parameters: one element, or a random direction of length 1 over a tensor. */
typedef struct line {
    tensor t;
    int64_t element; /* of the tensor; -1: a direction */
    uint64_t direction;
    double size;     /* of the coordinates: max(1, |x|) */
    double gradient; /* along the line; terms: the sum of its absolute terms */
    double terms;
} line;

typedef struct findings {
    int64_t checked, nonzero;
    int wrong;
    double worst; /* largest error, in units of the bound */
} findings;

static double part(const line *l, int64_t i) {
    if (l->element >= 0) return i == l->element;
    const double sign = drive_random(l->direction, (uint64_t)i) < 0 ? -1 : 1;
    return sign / sqrt((double)l->t.n);
}

/* Mean loss with the parameters moved by `step` along the line. */
static int loss_at(model *m, const line *l, double step, double *loss, ga_err *e) {
    double *w = drive_weights(m) + l->t.at;
    double old[l->t.n];
    for (int64_t i = 0; i < l->t.n; i++) {
        old[i] = w[i];
        w[i] += step * part(l, i);
    }
    const int code = drive_loss(m, loss, e);
    for (int64_t i = 0; i < l->t.n; i++) w[i] = old[i];
    return code;
}

static int central(model *m, const line *l, double h, double *d, ga_err *e) {
    double above, below;
    GA_TRY(loss_at(m, l, h, &above, e));
    GA_TRY(loss_at(m, l, -h, &below, e));
    *d = (above - below) / (2 * h);
    return 0;
}

static line line_of(model *m, tensor t, int64_t element, uint64_t direction) {
    line l = {.t = t, .element = element, .direction = direction, .size = 1};
    const double *weights = drive_weights(m) + t.at, *gradients = drive_gradients(m) + t.at;
    double sum = 0;
    for (int64_t i = 0; i < t.n; i++) {
        const double g = t.trained ? gradients[i] : 0, p = part(&l, i);
        if (p != 0) l.size = fmax(l.size, fabs(weights[i]));
        l.gradient += g * p;
        l.terms += fabs(g * p);
        sum += fabs(g);
    }
    l.terms += sum / (double)t.n; /* an element near 0 may be a sum of cancelling terms */
    return l;
}

static void report(const line *l, double whole, double half, bool kink) {
    char where[32] = " along a direction";
    if (l->element >= 0) snprintf(where, sizeof where, "[%lld]", (long long)l->element);
    printf("%s%s: gradient %.12g, differences %.12g (h) %.12g (h/2): %s\n", l->t.name, where,
           l->gradient, whole, half,
           kink           ? "kink"
           : l->t.trained ? "wrong"
                          : "not trained, but the loss depends on it");
}

static int check_line(model *m, const line *l, double loss, findings *f, ga_err *e) {
    double whole = 0, half = 0, h = 6e-6 * l->size;
    bool kink = false;
    for (int i = 0; i < SHRINKS; i++, h /= 10) {
        GA_TRY(central(m, l, h, &whole, e));
        GA_TRY(central(m, l, h / 2, &half, e));
        const double rounding = 0x1p-50 * fmax(1, fabs(loss)) / h;
        const double bound = 1e-7 * (l->terms + fabs(half)) + rounding;
        const double error = fabs(whole - l->gradient), finer = fabs(half - l->gradient);
        const double exact = fabs((4 * half - whole) / 3 - l->gradient);
        const bool falls = finer < error / 2.5 && exact <= 2 * bound;
        if (error <= bound || falls) {
            f->worst = fmax(f->worst, fmin(error, falls ? exact / 2 : error) / bound);
            return 0;
        }
        kink = !(fabs(whole - half) <= bound);
        if (!kink) break;
    }
    if (f->wrong++ < SHOWN) report(l, whole, half, kink);
    return 0;
}

static int check_tensor(model *m, tensor t, double loss, findings *f, ga_err *e) {
    const int64_t n = t.n <= ALL ? t.n : ELEMENTS;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = k;
        if (t.n > ALL) i = (int64_t)((0.5 + 0.5 * drive_random(77, (uint64_t)k)) * (double)t.n);
        const line l = line_of(m, t, i, 0);
        GA_TRY(check_line(m, &l, loss, f, e));
    }
    for (uint64_t k = 0; t.n > ALL && k < DIRECTIONS; k++) {
        const line l = line_of(m, t, -1, 100 + k);
        GA_TRY(check_line(m, &l, loss, f, e));
    }
    f->checked = t.n > ALL ? n + DIRECTIONS : n;
    for (int64_t i = 0; t.trained && i < t.n; i++) f->nonzero += drive_gradients(m)[t.at + i] != 0;
    if (t.trained && 2 * f->nonzero < t.n) {
        printf("%s: %lld of %lld elements of the gradient are not 0: too few for a check\n", t.name,
               (long long)f->nonzero, (long long)t.n);
        f->wrong++;
    }
    return 0;
}

int differences_check(model *m, ga_err *e) {
    double loss;
    int wrong = 0;
    GA_TRY(drive_loss(m, &loss, e));
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        findings f = {0};
        GA_TRY(check_tensor(m, t, loss, &f, e));
        printf("%s: %s, %lld differences over %lld elements, %lld not 0, error %.1e of the bound\n",
               t.name, f.wrong ? "FAILED" : "ok", (long long)f.checked, (long long)t.n,
               (long long)f.nonzero, f.worst);
        wrong += f.wrong;
    }
    return wrong;
}
