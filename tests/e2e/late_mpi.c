/* late_mpi.c: through MPI's profiling names it holds each reduction back: for 10 ms behind its start it is not
 * seen as complete, however fast the network is. */
#include <mpi.h>
#include <time.h>

enum { MOST = 16 }; /* under way at once */

static struct {
    MPI_Request request;
    double start;
} held[MOST];
static int count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int MPI_Ialltoallv(const void *in, const int *n, const int *at, MPI_Datatype from, void *out, const int *m,
                   const int *to, MPI_Datatype type, MPI_Comm group, MPI_Request *request) {
    const int code = PMPI_Ialltoallv(in, n, at, from, out, m, to, type, group, request);
    if (count < MOST) {
        held[count].request = *request;
        held[count++].start = now();
    }
    return code;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    const MPI_Request tested = *request;
    int i = 0;
    while (i < count && held[i].request != tested) i++;
    *done = 0;
    if (i < count && now() - held[i].start < 0.01) return MPI_SUCCESS;
    const int code = PMPI_Test(request, done, status);
    if (i < count && *done) held[i] = held[--count];
    return code;
}
