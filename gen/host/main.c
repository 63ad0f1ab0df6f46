/* main.c: gagen. `--dev DIR` reads gagen's Lua, templates and runtime from a checkout instead of
 * from the binary; every other argument is gagen.lua's. */
#include "host.h"

#include <string.h>

/* Takes `--dev DIR` out of the arguments. */
static void take_dev(ga_host *host) {
    int kept = 0;
    for (int i = 0; i < host->argc; i++) {
        if (strcmp(host->argv[i], "--dev") == 0 && i + 1 < host->argc) host->dev = host->argv[++i];
        else host->argv[kept++] = host->argv[i];
    }
    host->argc = kept;
}

int main(int argc, char **argv) {
    ga_host host = { .argc = argc > 0 ? argc - 1 : 0, .argv = argv + 1 };
    take_dev(&host);
    lua_State *L = ga_host_open(&host);
    if (!L) {
        fprintf(stderr, "gagen: not enough memory\n");
        return GA_EXIT_ENVIRONMENT;
    }
    int code = ga_host_main(L);
    lua_close(L);
    if (fflush(stdout) != 0 && code == GA_EXIT_DONE) {
        perror("gagen: standard output");
        code = GA_EXIT_ENVIRONMENT;
    }
    return code;
}
