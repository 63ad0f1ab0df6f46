/* group.h: a group of ranks for unit tests: one if linked with comm_self, several under mpirun if linked with
 * comm_mpi. */
#ifndef GROUP_H
#define GROUP_H

#include "scratch.h"

#include "ranks/comm.h"

enum { WIRE = 4096 };

typedef struct {
    ga_arena arena, wires;
    ga_comm *comm;
    int rank, size;
    char folder[128]; /* of group_folder */
} group;

static inline int open_group(void **state) {
    group *g = *state = calloc(1, sizeof(group));
    ga_err e;
    g->arena = open_arena(1 << 20);
    g->wires = open_arena(GA_WIRES * WIRE);
    if (ga_comm_open(&g->comm, &g->arena, &g->wires, &e) < 0) fail_msg("%s", e.msg);
    g->rank = ga_comm_rank(g->comm);
    g->size = ga_comm_size(g->comm);
    return 0;
}

static inline int close_group(void **state) {
    group *g = *state;
    ga_comm_close(g->comm);
    ga_arena_close(&g->arena);
    ga_arena_close(&g->wires);
    free(g);
    return 0;
}

/* A new folder that all ranks know. */
static inline const char *group_folder(group *g) {
    const char *temporary = getenv("TMPDIR");
    snprintf(g->folder, sizeof g->folder, "%.80s/gagen-group-XXXXXX", temporary ? temporary : "/tmp");
    if (g->rank == 0) assert_non_null(mkdtemp(g->folder));
    assert_int_equal(ga_comm_broadcast(g->comm, g->folder, sizeof g->folder, 0, NULL), 0);
    return g->folder;
}

/* Removes that folder when all ranks have come here. */
static inline void group_folder_remove(group *g) {
    char command[192];
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    if (g->rank > 0) return;
    snprintf(command, sizeof command, "rm -rf -- %s", g->folder);
    assert_int_equal(system(command), 0);
}

#endif
