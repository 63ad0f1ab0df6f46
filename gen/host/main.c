/* main.c: gagen. `--dev DIR` reads gagen's Lua, templates and runtime from a checkout instead of
 * from the binary; all other arguments go to gagen.lua. */
#include "base/ga.h"
#include "host.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Takes `--dev DIR` out of the arguments. */
static void take_dev(ga_host *host) {
    int kept = 0;
    for (int i = 0; i < host->argc; i++) {
        if (strcmp(host->argv[i], "--dev") == 0 && i + 1 < host->argc) host->dev = host->argv[++i];
        else host->argv[kept++] = host->argv[i];
    }
    host->argc = kept;
}

/* Whether the folder has gagen's first script. */
static int is_checkout(const char *folder) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/gen/gagen.lua", folder);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

int main(int argc, char **argv) {
    ga_host host = { .argc = argc > 0 ? argc - 1 : 0, .argv = argv + 1 };
    take_dev(&host);
    if (host.dev && !is_checkout(host.dev)) {
        fputs("gagen: --dev: no gen/gagen.lua is in that folder, expected a checkout of gagen\n", stderr);
        return GA_EXIT_USER;
    }
    ga_err e = {0};
    if (ga_stack_open(&e) < 0) {
        fprintf(stderr, "gagen: %s\n", e.msg);
        return GA_EXIT_ENVIRONMENT;
    }
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails and is reported */
    lua_State *L = ga_host_open(&host);
    if (!L) {
        fprintf(stderr, "gagen: not enough memory\n");
        return GA_EXIT_ENVIRONMENT;
    }
    int code = ga_host_main(L); /* the state is not closed: the end of the process frees its memory at once */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == GA_EXIT_DONE) {
        fprintf(stderr, "gagen: standard output: it could not be written whole\n");
        code = GA_EXIT_ENVIRONMENT;
    }
    return code;
}
