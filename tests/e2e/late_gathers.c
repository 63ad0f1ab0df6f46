/* late_gathers.c: through MPI's profiling names it makes the worst of gathers that have a window of their own.
 * Elements are not numbers from the start of a gather to its end, and from each update to the next gather; gathers end
 * after 0 to 3 ms, in any order. */
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 16, WINDOWS = 512 };

/* request: the one that the program has. A library may give all gathers that are complete at once the same handle, so
 * each has a handle made here, and `own` is that of the library. */
static struct {
    MPI_Request request, own;
    double end;
    char *arrived, *window;
    size_t bytes;
} held[MOST];
static int count;

static struct {
    char *at;
    size_t bytes;
} windows[WINDOWS];
static int known;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double delay(void) {
    static unsigned state = 1;
    state = state * 1103515245 + 12345;
    return 1e-3 * (state >> 16 & 3);
}

static void know(char *at, size_t bytes) {
    for (int i = 0; i < known; i++)
        if (windows[i].at == at && windows[i].bytes == bytes) return;
    if (known == WINDOWS) abort();
    windows[known].at = at;
    windows[known++].bytes = bytes;
}

static int asked(void *state, MPI_Status *status) {
    (void)state;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int freed(void *state) {
    (void)state;
    return MPI_SUCCESS;
}

static int cancelled(void *state, int complete) {
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

int MPI_Iallgatherv(const void *in, int n, MPI_Datatype from, void *out, const int *counts, const int *at,
                    MPI_Datatype type, MPI_Comm group, MPI_Request *request) {
    int size, bytes;
    if (in == MPI_IN_PLACE) return PMPI_Iallgatherv(in, n, from, out, counts, at, type, group, request);
    if (count == MOST) abort();
    MPI_Comm_size(group, &size);
    MPI_Type_size(type, &bytes);
    const size_t all = (size_t)(at[size - 1] + counts[size - 1]) * (size_t)bytes;
    held[count].arrived = malloc(all);
    held[count].window = out;
    held[count].bytes = all;
    held[count].end = now() + delay();
    know(out, all);
    memset(out, 0xff, all);
    const int code = PMPI_Iallgatherv(in, n, from, held[count].arrived, counts, at, type, group, &held[count].own);
    MPI_Grequest_start(asked, freed, cancelled, NULL, request);
    held[count++].request = *request;
    return code;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    const MPI_Request tested = *request;
    int i = 0;
    while (i < count && held[i].request != tested) i++;
    *done = 0;
    if (i < count && now() < held[i].end) return MPI_SUCCESS;
    if (i < count) {
        const int code = PMPI_Test(&held[i].own, done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || !*done) return code;
        memcpy(held[i].window, held[i].arrived, held[i].bytes);
        free(held[i].arrived);
        held[i] = held[--count];
        MPI_Grequest_complete(tested);
    }
    return PMPI_Test(request, done, status);
}

/* The small sum of an update: what was gathered before it is old. */
int MPI_Iallgather(const void *in, int n, MPI_Datatype from, void *out, int m, MPI_Datatype type, MPI_Comm group,
                   MPI_Request *request) {
    for (int i = 0; i < known; i++) memset(windows[i].at, 0xff, windows[i].bytes);
    return PMPI_Iallgather(in, n, from, out, m, type, group, request);
}
