/* workers.c: see workers.h. The table of times is shared memory, so that what a process writes down outlives it. */
#define _GNU_SOURCE
#include "workers.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TESTS = 8192, NAME_BYTES = 160, SLOWEST = 20 };

typedef struct {
    char name[NAME_BYTES]; /* "test_file: test", or "test_file" of a C group */
    double wall, cpu;
} entry;

/* Shared by the processes. */
static struct {
    atomic_size_t claimed, count;
    entry tests[MOST_TESTS];
} *shared;

static struct {
    const char *file;
    entry *tests;
    size_t count;
} earlier;

static int worker; /* ga_workers_number */

static void read_earlier(void) {
    entry e;
    FILE *f = fopen(earlier.file, "r");
    if (!f) return;
    while (fscanf(f, "%lf %lf %159[^\n]", &e.wall, &e.cpu, e.name) == 3) {
        earlier.tests = realloc(earlier.tests, (earlier.count + 1) * sizeof e);
        if (!earlier.tests) abort();
        earlier.tests[earlier.count++] = e;
    }
    fclose(f);
}

void ga_workers_open(const char *file) {
    earlier.file = file;
    read_earlier();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
}

double ga_workers_expected(const char *test, double guess) {
    for (size_t i = 0; i < earlier.count; i++) {
        if (strncmp(earlier.tests[i].name, test, NAME_BYTES - 1) == 0) return earlier.tests[i].wall;
    }
    return guess;
}

int ga_workers_number(void) { return worker; }

static double seconds_of(struct rusage u) {
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

ga_time ga_workers_now(void) {
    struct timespec t;
    struct rusage own, children;
    clock_gettime(CLOCK_MONOTONIC, &t);
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return (ga_time){ (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, seconds_of(own) + seconds_of(children) };
}

void ga_workers_took(const char *test, ga_time begin) {
    const ga_time end = ga_workers_now();
    const size_t at = atomic_fetch_add(&shared->count, 1);
    if (at >= MOST_TESTS) {
        fprintf(stderr, "more than %d tests: raise MOST_TESTS in tests/workers.c\n", MOST_TESTS);
        abort();
    }
    entry *e = &shared->tests[at];
    snprintf(e->name, sizeof e->name, "%s", test);
    e->wall = end.wall - begin.wall;
    e->cpu = end.cpu - begin.cpu;
}

/* Runs what this process gets of the tasks; returns how many failed. */
static int work(const ga_tasks *list) {
    int failed = 0;
    for (size_t i; (i = atomic_fetch_add(&shared->claimed, 1)) < list->count;)
        failed += list->tasks[i].run(list->tasks[i].what) != 0;
    return failed;
}

static int longer_first(const void *a, const void *b) {
    const double x = ((const ga_task *)a)->seconds, y = ((const ga_task *)b)->seconds;
    return (x < y) - (x > y);
}

int ga_workers_run(ga_tasks *list, int count) {
    int failed = 0, status;
    if (count == 1) return work(list);
    qsort(list->tasks, list->count, sizeof *list->tasks, longer_first);
    fflush(NULL);
    for (int k = 1; k <= count; k++) {
        const pid_t child = fork();
        if (child < 0) {
            perror("fork");
            exit(2);
        }
        if (child > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        worker = k;
        const int own = work(list);
        fflush(NULL);
        _exit(own < 100 ? own : 100);
    }
    while (wait(&status) > 0 || errno == EINTR) {
        if (WIFSIGNALED(status)) fprintf(stderr, "a process of the tests ended by signal %d\n", WTERMSIG(status));
        failed += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    return failed;
}

static int slower_first(const void *a, const void *b) {
    const double x = ((const entry *)a)->wall, y = ((const entry *)b)->wall;
    return (x < y) - (x > y);
}

/* The tests of the file that `e` belongs to are added up in `files`, of which there are *count. */
static void add_to_file(entry *files, size_t *count, const entry *e) {
    const int length = (int)strcspn(e->name, ":");
    size_t i = 0;
    while (i < *count && (strncmp(files[i].name, e->name, (size_t)length) != 0 || files[i].name[length])) i++;
    if (i == *count) {
        files[(*count)++] = (entry){ .wall = 0 };
        snprintf(files[i].name, sizeof files[i].name, "%.*s", length, e->name);
    }
    files[i].wall += e->wall;
    files[i].cpu += e->cpu;
}

static void print_entries(const char *title, const entry *e, size_t n) {
    printf("%s\n   seconds of the clock, of the processor\n", title);
    for (size_t i = 0; i < n; i++) printf("%9.1f %9.1f  %s\n", e[i].wall, e[i].cpu, e[i].name);
}

/* Seconds of this run, and earlier ones of tests that did not run in this. */
static void keep(const entry *tests, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s.new", earlier.file);
    FILE *f = fopen(path, "w");
    if (!f) return;
    for (size_t i = 0; i < n; i++) fprintf(f, "%.3f %.3f %s\n", tests[i].wall, tests[i].cpu, tests[i].name);
    for (size_t k = 0; k < earlier.count; k++) {
        bool again = false;
        for (size_t i = 0; i < n && !again; i++) again = strcmp(tests[i].name, earlier.tests[k].name) == 0;
        if (!again) fprintf(f, "%.3f %.3f %s\n", earlier.tests[k].wall, earlier.tests[k].cpu, earlier.tests[k].name);
    }
    if (fclose(f) == 0) rename(path, earlier.file);
}

size_t ga_workers_report(void) {
    const size_t n = shared->count;
    size_t files = 0;
    entry *by_file = calloc(n + 1, sizeof *by_file), total = { .name = "all" };
    if (!by_file) abort();
    for (size_t i = 0; i < n; i++) {
        add_to_file(by_file, &files, &shared->tests[i]);
        total.wall += shared->tests[i].wall;
        total.cpu += shared->tests[i].cpu;
    }
    qsort(by_file, files, sizeof *by_file, slower_first);
    qsort(shared->tests, n, sizeof *shared->tests, slower_first);
    if (n > 0) {
        print_entries("files", by_file, files);
        print_entries("slowest tests", shared->tests, n < SLOWEST ? n : SLOWEST);
        print_entries("sum", &total, 1);
        keep(shared->tests, n);
    }
    free(by_file);
    return n;
}
