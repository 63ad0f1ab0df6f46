/* tuning.h: tuning.json in the program's folder: which kernels a start has chosen for a device. A file of another
 * device or of other kernels is as none, and replaced. */
#ifndef GA_TUNING_H
#define GA_TUNING_H
#include "device/twins.h"

typedef struct ga_tuning {
    char path[4096];
    struct json_t *root; /* { "device", "kernels": the hash of their text, "twins": { name: taken } } */
    bool changed;
} ga_tuning;

/* Reads the file; device NULL: as if there were none. */
void ga_tuning_read(ga_tuning *t, const char *folder, const char *device, const ga_kernel_source *text);
void ga_tuning_close(ga_tuning *t);
int ga_tuning_get(const ga_tuning *t, const char *name); /* 0, 1, or -1: nothing is known */
void ga_tuning_set(ga_tuning *t, const char *name, bool taken);
/* Writes what has changed. Best effort: a folder that cannot be written costs the measurement of the next start, and a
 * line says so. */
void ga_tuning_write(const ga_tuning *t);

/* The hash of the names of the twins that are taken, in their order; "" if none is. */
void ga_tuning_hash(char out[65], const ga_twin *list, const ga_twin_state *states, int count);
#endif
