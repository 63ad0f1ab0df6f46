/* save_again.c: saves checkpoints of the library `looped` without training in between.
 *   save_again CYCLES FOLDER           trains CYCLES cycles and saves them in FOLDER
 *   save_again load (PATH FOLDER)...   loads each checkpoint at PATH and saves it in FOLDER */
#include "looped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    looped *m = NULL;
    ga_err e = {0};
    if (argc < 3) return 1;
    int code = looped_open(&m, &(looped_options){.quiet = 1, .threads = 1}, &e);
    if (strcmp(argv[1], "load") == 0) {
        for (int i = 2; i + 1 < argc && code >= 0; i += 2) {
            code = looped_load(m, argv[i], &e);
            if (code >= 0) code = looped_save(m, argv[i + 1], &e);
        }
    } else {
        for (int k = 0; k < atoi(argv[1]) && code >= 0; k++) code = looped_cycle(m, &e);
        if (code >= 0) code = looped_save(m, argv[2], &e);
    }
    looped_close(m);
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    return code < 0;
}
