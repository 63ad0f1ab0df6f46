/* launcher.c: variables that launchers set for their processes. Slurm's SLURM_NTASKS is not one of them:
 * it is also set in a batch script, where a program runs once. */
#include "ranks/launcher.h"

#include <stdlib.h>

int ga_launcher_check(int size, const char *what, ga_err *e) {
    static const char *const SIZES[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        "WORLD_SIZE"};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        const char *text = getenv(SIZES[i]);
        const long started = text ? strtol(text, NULL, 10) : 0;
        if (started > size)
            return ga_fail(e, GA_INPUT, "started as one of %ld processes (%s=%.20s), but %s", started,
                           SIZES[i], text, what);
    }
    return GA_OK;
}
