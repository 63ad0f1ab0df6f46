/* rendezvous.h: connects the processes of a group without MPI, by RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR and MASTER_PORT, as torchrun sets them. Every rank keeps one TCP connection to rank 0
 * open until the group is closed. */
#ifndef GA_RENDEZVOUS_H
#define GA_RENDEZVOUS_H

#include "base/ga.h"

enum { GA_RANKS_MAX = 1024, GA_RENDEZVOUS_SECONDS = 60 };

typedef struct ga_rendezvous {
    int rank, size;
    char address[256], port[12]; /* of rank 0; several addresses have blanks between them */
    uint64_t nonce; /* the same on all ranks of one job; connections with another one are dropped */
} ga_rendezvous;

/* Reads the environment: rank 0 of 1 if neither RANK nor WORLD_SIZE is set. GA_INPUT names the
 * variable that is missing or wrong. */
int ga_rendezvous_read(ga_rendezvous *r, ga_err *e);

/* Connects. On rank 0 it fills sockets[1..size-1], by rank; on the others sockets[0]; the rest are -1.
 * GA_ENVIRONMENT after GA_RENDEZVOUS_SECONDS; the message lists the ranks that did not connect. */
int ga_rendezvous_connect(const ga_rendezvous *r, int *sockets, ga_err *e);

/* The same in parts, for rank 0 with a port of the system's choice: r gets port, nonce and the addresses of this
 * machine, and goes to the other ranks by some other way. */
int ga_rendezvous_listen_anywhere(ga_rendezvous *r, int *listener, ga_err *e);
int ga_rendezvous_gather(const ga_rendezvous *r, int listener, int *sockets, ga_err *e); /* closes the listener */
int ga_rendezvous_join(const ga_rendezvous *r, int *sockets, ga_err *e);                 /* all other ranks */

#endif
