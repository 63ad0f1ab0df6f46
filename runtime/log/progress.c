/* progress.c: the progress line: as many columns as fit, from the left. */
#define _GNU_SOURCE /* strcasestr */
#include "log/progress.h"

#include "base/text.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { COLUMN = 64, LINE = 512, STATUS = 4096 };

int64_t ga_peak_bytes(void) {
    char text[STATUS]; /* the line is among the first ones; getrusage counts memory before exec, too */
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *found = strstr(text, "VmHWM:");
    if (found) return strtoll(found + strlen("VmHWM:"), NULL, 10) * 1024;
    struct rusage use = {0};
    getrusage(RUSAGE_SELF, &use);
    return (int64_t)use.ru_maxrss * 1024;
}

void ga_progress_open(ga_progress *p, bool wanted) {
    const char *terminal = getenv("TERM");
    *p = (ga_progress){.first = -1};
    p->shown = wanted && isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    if (p->shown) tzset(); /* reads the time zone file now, not between two cycles */
}

/* "1,204" */
static void add_count(ga_text *t, int64_t n) {
    if (n < 1000) {
        ga_text_add(t, "%lld", (long long)n);
        return;
    }
    add_count(t, n / 1000);
    ga_text_add(t, ",%03lld", (long long)(n % 1000));
}

/* "498k", "1.25M": three significant digits and a unit. */
static void add_amount(ga_text *t, double x) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int i = 0;
    while (x >= 999.5 && i < 4) {
        x /= 1000;
        i++;
    }
    ga_text_add(t, "%.3g%s", x, units[i]);
}

static void add_seconds(ga_text *t, double s) {
    const long long minutes = (long long)(s / 60), hours = minutes / 60;
    if (s < 60)
        ga_text_add(t, "%.0fs left", floor(s));
    else if (minutes < 60)
        ga_text_add(t, "%lldm left", minutes);
    else if (hours < 24)
        ga_text_add(t, "%lldh %lldm left", hours, minutes % 60);
    else
        ga_text_add(t, "%lldd %lldh left", hours / 24, hours % 24);
}

static void add_bar(ga_text *t, double part, int width) {
    const int full = (int)(part * width);
    ga_text_add(t, "[");
    for (int i = 0; i < width; i++) ga_text_add(t, i < full ? "#" : "-");
    ga_text_add(t, "] %d%%", (int)(part * 100));
}

/* Estimated seconds until the end, from the time so far with its evaluations and checkpoints. */
static double seconds_left(const ga_progress *p, const ga_progress_event *v, double now) {
    const double left = (double)(v->cycles - v->cycle);
    if (v->cycle <= p->first) return left * v->ms / 1e3;
    return left * (now - p->begun) / (double)(v->cycle - p->first);
}

enum { COUNT, BAR, LOSS, SPEED, LEFT, RATE, NORM, MEMORY, END, COLUMNS };

static void add_column(ga_text *t, int column, int width, const ga_progress *p,
                       const ga_progress_event *v, double now) {
    const double left = seconds_left(p, v, now);
    switch (column) {
    case COUNT:
        ga_text_add(t, "update  ");
        add_count(t, v->cycle);
        ga_text_add(t, "/");
        add_count(t, v->cycles);
        break;
    case BAR: add_bar(t, (double)v->cycle / (double)v->cycles, width < 110 ? 10 : 20); break;
    case LOSS: ga_text_add(t, "loss %.4g", isnan(v->loss) ? fabs(v->loss) : v->loss); break;
    case SPEED:
        add_amount(t, p->ms > 0 ? 1e3 * v->amount / p->ms : 0);
        ga_text_add(t, " %s/s", v->unit);
        break;
    case LEFT:
        if (v->cycle < v->cycles) add_seconds(t, left);
        break;
    case RATE: ga_text_add(t, "lr %.2g", v->lr); break;
    case NORM:
        if (v->grad_norm >= 0) ga_text_add(t, "|g| %.3g", v->grad_norm);
        break;
    case MEMORY:
        add_amount(t, (double)ga_peak_bytes());
        ga_text_add(t, "B");
        break;
    case END: {
        const time_t end = time(NULL) + (time_t)left;
        struct tm local;
        if (left >= 60 && localtime_r(&end, &local))
            ga_text_add(t, "(%02d:%02d)", local.tm_hour, local.tm_min);
        break;
    }
    default: break;
    }
}

void ga_progress_text(char *out, size_t size, int columns, const ga_progress *p,
                      const ga_progress_event *v, double now) {
    ga_text line = {.base = out, .size = size};
    *out = 0;
    for (int i = 0; i < COLUMNS; i++) {
        char text[COLUMN] = "";
        ga_text t = {.base = text, .size = sizeof text};
        add_column(&t, i, columns, p, v, now);
        if (t.used == 0) continue;
        if (line.used + 2 + t.used >= (size_t)columns) return;
        ga_text_add(&line, "%s%s", line.used ? "  " : "", text);
    }
}

/* Whether texts of this environment are UTF-8. */
static bool is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

void ga_progress_plot(ga_progress *p) {
    p->plots = true;
    p->braille = is_utf8();
}

/* Draws the last event, with the curve if it is wanted. */
static void draw(ga_progress *p, double now) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = 80;
    char text[GA_CURVE_TEXT + LINE] = "";
    if (p->plots) ga_curve_text(text, &p->curve, size.ws_col, p->braille);
    ga_progress_text(text + strlen(text), LINE, size.ws_col, p, &p->last, now);
    ga_draw(text);
    p->drawn_at = now;
}

void ga_progress_update(ga_progress *p, const ga_progress_event *v) {
    const double now = ga_clock();
    if (!p->shown || v->cycles <= 0) return;
    if (p->first < 0) {
        p->first = v->cycle;
        p->begun = now;
        p->ms = v->ms;
    }
    p->ms += 0.1 * (v->ms - p->ms);
    if (p->plots) ga_curve_add(&p->curve, v->loss);
    const bool soon = ga_draw_shown() && now - p->drawn_at < (p->plots ? 0.2 : 0.1);
    p->last = *v;
    if (soon && v->cycle < v->cycles) return;
    draw(p, now);
}

void ga_progress_end(ga_progress *p) {
    if (!p->shown || p->first < 0) return;
    if (p->plots && !ga_draw_shown()) draw(p, ga_clock()); /* the whole curve stays */
    ga_draw(NULL);
}
