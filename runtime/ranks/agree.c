/* agree.c: what the ranks agree on, for every engine of comm.h. */
#include "ranks/comm.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 160 }; /* bytes of a text in a message */

int ga_comm_list(const ga_comm *c, int group) {
    const ga_group *g = ga_comm_group(c, group);
    return g->first + g->lists[ga_comm_rank(c)];
}

int ga_comm_group_named(const ga_comm *c, const char *name) {
    const ga_group *g;
    for (int k = 1; (g = ga_comm_group(c, k)); k++)
        if (strcmp(g->name, name) == 0) return k;
    return -1;
}

int ga_comm_agree(ga_comm *c, int code, ga_err *e) {
    int low, rank;
    if (code > 0) code = 0;
    GA_TRY(ga_comm_lowest(c, code, &low, &rank, code < 0 ? NULL : e));
    if (code < 0) return code;
    return low == 0 ? GA_OK
                    : ga_fail(e, (ga_status)low, "rank %d failed with code %d; its own line says why", rank, -low);
}

int ga_comm_compare(ga_comm *c, uint64_t value, int *rank, ga_err *e) {
    uint64_t first = value;
    int low;
    GA_TRY(ga_comm_broadcast(c, &first, sizeof first, 0, e));
    GA_TRY(ga_comm_lowest(c, first == value ? 0 : -1, &low, rank, e));
    if (low == 0) *rank = -1;
    return GA_OK;
}

int ga_comm_handshake(ga_comm *c, uint64_t hash, ga_err *e) {
    int rank;
    GA_TRY(ga_comm_compare(c, hash, &rank, e));
    return rank < 0 ? GA_OK
                    : ga_fail(e, GA_INPUT, "rank %d runs another program, or with other options, than rank 0: start "
                              "the same one everywhere", rank);
}

static uint64_t hash_of(uint64_t h, const char *text) {
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

/* Both texts of a fact in which `rank` differs from rank 0. */
static int say_difference(ga_comm *c, const ga_fact *f, int rank, ga_err *e) {
    char first[SHOWN], other[SHOWN];
    snprintf(first, sizeof first, "%s", f->text);
    memcpy(other, first, sizeof other);
    GA_TRY(ga_comm_broadcast(c, first, sizeof first, 0, e));
    GA_TRY(ga_comm_broadcast(c, other, sizeof other, rank, e));
    return ga_fail(e, GA_INPUT, "rank %d: %s is %s, rank 0 has %s", rank, f->name, other, first);
}

int ga_comm_same_facts(ga_comm *c, const ga_fact *facts, int count, ga_err *e) {
    const uint64_t start = 0xcbf29ce484222325u;
    uint64_t all = start;
    int rank;
    for (int i = 0; i < count; i++) all = hash_of(all, facts[i].text);
    GA_TRY(ga_comm_compare(c, all, &rank, e));
    for (int i = 0; i < count && rank >= 0; i++) {
        int other;
        GA_TRY(ga_comm_compare(c, hash_of(start, facts[i].text), &other, e));
        if (other >= 0) return say_difference(c, &facts[i], other, e);
    }
    return GA_OK;
}
