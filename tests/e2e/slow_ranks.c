/* slow_ranks.c: linked with --wrap of the functions below: SLOW="PLACE RANK SECONDS [PASS]" makes a rank sleep where it
 * passes the place for the first time, or for the time that PASS counts, in `start`, `computing`, `saving` or
 * `evaluating`, and first appends its process to the file SLOW_FILE. Open MPI's variables tell the rank. */
#include "base/rng.h"
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool trained; /* before that a folder is synced too */

static void pass(const char *place) {
    static int passes;
    const char *slow = getenv("SLOW"), *own = getenv("OMPI_COMM_WORLD_RANK"), *file = getenv("SLOW_FILE");
    char where[32];
    int rank, seconds, wanted = 1;
    if (!slow || !own || !file || sscanf(slow, "%31s %d %d %d", where, &rank, &seconds, &wanted) < 3) return;
    if (strcmp(where, place) != 0 || atoi(own) != rank || ++passes != wanted) return;
    FILE *f = fopen(file, "a");
    if (f) {
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
    }
    struct timespec rest = {.tv_sec = seconds};
    while (nanosleep(&rest, &rest) != 0) continue;
}

void __real_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);
void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);
void __real_ga_loader_release(ga_loader *l, int count);
void __wrap_ga_loader_release(ga_loader *l, int count);
int64_t __real_ga_eval_batch(const ga_loader_config *c, int64_t k, void *out);
int64_t __wrap_ga_eval_batch(const ga_loader_config *c, int64_t k, void *out);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high) {
    pass("start");
    __real_ga_init_uniform(data, t, count, seed, name, low, high);
}

void __wrap_ga_loader_release(ga_loader *l, int count) {
    trained = true;
    pass("computing");
    __real_ga_loader_release(l, count);
}

int64_t __wrap_ga_eval_batch(const ga_loader_config *c, int64_t k, void *out) {
    pass("evaluating");
    return __real_ga_eval_batch(c, k, out);
}

int __wrap_fsync(int fd) {
    if (trained) pass("saving");
    return __real_fsync(fd);
}
