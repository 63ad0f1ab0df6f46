/* mpi_exchange.h: exchanges over MPI, each as a sequence of calls that do not block. Used by comm_mpi.c alone. */
#ifndef GA_MPI_EXCHANGE_H
#define GA_MPI_EXCHANGE_H

#include "ranks/exchange.h"

#include <mpi.h>

/* The ranks of an exchange: all, or those of one list of a group. */
typedef struct ga_mpi_ranks {
    int rank, size;
    MPI_Comm all;       /* for calls that wait at once */
    MPI_Comm *wires;    /* for exchanges, one for each wire: those of one wire follow each other in the same order on
                           all ranks */
    size_t wire_bytes;  /* of each wire's memory */
    const void **parts; /* room for `size` */
} ga_mpi_ranks;

/* One exchange under way. */
typedef struct ga_mpi_wire {
    int number;
    const ga_mpi_ranks *ranks; /* of the exchange */
    MPI_Request request;
    const ga_exchange *x; /* NULL: free */
    bool gathers;         /* the second half of an all-reduce, or an all-gather */
    int64_t done;         /* elements of each cut that are exchanged */
    int64_t piece;        /* most elements of each cut that travel at once */
    char *base;           /* parts that have come; its upper half: parts rounded to 16 bits */
    int *send, *send_at, *receive, *receive_at; /* `size` elements each */
} ga_mpi_wire;

/* GA_ENVIRONMENT with MPI's text unless rc is MPI_SUCCESS. */
int ga_mpi_check(int rank, int rc, const char *operation, ga_err *e);
MPI_Datatype ga_mpi_type(ga_dtype t);

/* Begins an exchange on a free wire, and moves it along. 1: it has ended, and the wire is free; 2: it has moved; 0:
 * nothing new; negative: a failure, and the wire is free. */
int ga_mpi_begin(ga_mpi_wire *w, const ga_mpi_ranks *g, const ga_exchange *x, ga_err *e);
int ga_mpi_advance(ga_mpi_wire *w, ga_err *e);

#endif
