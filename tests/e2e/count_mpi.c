/* count_mpi.c: through MPI's profiling names it counts the exchanges that really go over the ranks, and
 * each rank says them at the end. An all-reduce of a bucket is an all-to-all of its parts and an all-gather of
 * its cuts, a reduce-scatter the first of them; buckets have fewer bytes than a wire holds. */
#include <mpi.h>
#include <stdio.h>

static struct {
    long scattered, gathered, bytes, small;
} sums;

int MPI_Ialltoallv(const void *in, const int *n, const int *at, MPI_Datatype from, void *out, const int *m,
                   const int *to, MPI_Datatype type, MPI_Comm group, MPI_Request *request) {
    sums.scattered++;
    return PMPI_Ialltoallv(in, n, at, from, out, m, to, type, group, request);
}

int MPI_Iallgatherv(const void *in, int n, MPI_Datatype from, void *out, const int *m, const int *to,
                    MPI_Datatype type, MPI_Comm group, MPI_Request *request) {
    int size, ranks;
    MPI_Type_size(type, &size);
    MPI_Comm_size(group, &ranks);
    sums.gathered++;
    for (int i = 0; i < ranks; i++) sums.bytes += (long)m[i] * size;
    return PMPI_Iallgatherv(in, n, from, out, m, to, type, group, request);
}

/* Only the small sums of a boundary gather doubles of equal number. */
int MPI_Iallgather(const void *in, int n, MPI_Datatype from, void *out, int m, MPI_Datatype type, MPI_Comm group,
                   MPI_Request *request) {
    if (type == MPI_DOUBLE) sums.small++;
    return PMPI_Iallgather(in, n, from, out, m, type, group, request);
}

int MPI_Finalize(void) {
    fprintf(stderr, "counted: %ld scattered, %ld gathered of %ld bytes, %ld small\n", sums.scattered, sums.gathered,
            sums.bytes, sums.small);
    return PMPI_Finalize();
}
