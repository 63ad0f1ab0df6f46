/* self_exchange.h: between comm_self.c and self_exchange.c. */
#ifndef GA_SELF_EXCHANGE_H
#define GA_SELF_EXCHANGE_H

#include "ranks/comm.h"

ga_comm_counts *ga_self_counts(ga_comm *c);

#endif
