/* variant.c: make, then exec. */
#include "log/variant.h"

#include "log/options.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int ga_variant_start(const char *name, char *const *argv, ga_err *e) {
    char folder[1024], path[1200];
    int status = 0;
    pid_t child;
    GA_TRY(ga_program_folder(folder, sizeof folder, e));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char cores[32];
    snprintf(cores, sizeof cores, "-j%ld", sysconf(_SC_NPROCESSORS_ONLN));
    char *const make[] = {"env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "-s", cores, "-C",
                          folder, "LAST=yes", (char *)name, NULL};
    const int failed = posix_spawnp(&child, make[0], NULL, NULL, make, environ);
    if (failed) return ga_fail(e, GA_ENVIRONMENT, "make: cannot be started: %s", strerror(failed));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return ga_fail(e, GA_ENVIRONMENT, "make: %s", strerror(errno));
    if (status != 0) return ga_fail(e, GA_ENVIRONMENT, "%s: make has failed", path);
    execv(path, argv);
    return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be started: %s", path, strerror(errno));
}
