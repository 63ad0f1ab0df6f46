/* rendezvous.h: how the processes of a group find each other without MPI: from RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Every rank has one TCP connection
 * to rank 0, which stays open for as long as the group lives. */
#ifndef GA_RENDEZVOUS_H
#define GA_RENDEZVOUS_H

#include "base/ga.h"

enum { GA_RANKS_MAX = 1024, GA_RENDEZVOUS_SECONDS = 60 };

typedef struct ga_rendezvous {
    int rank, size;
    char address[256], port[12];
    uint64_t nonce; /* the same on all ranks of one job: a stranger's connection is dropped */
} ga_rendezvous;

/* Reads the environment: one rank of one if neither RANK nor WORLD_SIZE is set. GA_INPUT names the
 * variable that is missing or wrong. */
int ga_rendezvous_read(ga_rendezvous *r, ga_err *e);

/* Connects. Rank 0 gets sockets[1..size-1] by rank, the others sockets[0]; -1 where there is none.
 * GA_ENVIRONMENT after GA_RENDEZVOUS_SECONDS, with the ranks that did not come. */
int ga_rendezvous_connect(const ga_rendezvous *r, int *sockets, ga_err *e);

#endif
