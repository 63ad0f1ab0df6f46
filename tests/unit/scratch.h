/* scratch.h: shared by the unit tests: a temporary folder, files in it, an arena. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"

typedef struct {
    char path[128];
    char file[1024]; /* of the last scratch_path */
} scratch;

static inline int scratch_setup(void **state) {
    scratch *s = calloc(1, sizeof *s);
    const char *folder = getenv("TMPDIR");
    snprintf(s->path, sizeof s->path, "%.80s/gagen-unit-XXXXXX", folder ? folder : "/tmp");
    *state = s;
    return mkdtemp(s->path) ? 0 : -1;
}

static inline int scratch_teardown(void **state) {
    scratch *s = *state;
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", "--", s->path, (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    free(s);
    return 0;
}

static inline const char *scratch_path(scratch *s, const char *name) {
    snprintf(s->file, sizeof s->file, "%s/%s", s->path, name);
    return s->file;
}

static inline void put_file(const char *path, const void *data, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

/* Reads a whole file, zero-terminated; the caller frees it. */
static inline char *get_file(const char *path, size_t *n) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    char *data = calloc(1, (size_t)st.st_size + 1);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    close(fd);
    *n = (size_t)st.st_size;
    return data;
}

static inline void assert_has(const char *text, const char *part) {
    const char *shown = text ? text : "(none)";
    if (!strstr(shown, part)) fail_msg("'%s' lacks '%s'", shown, part);
}

static inline ga_arena open_arena(size_t bytes) {
    ga_arena a;
    ga_err e;
    assert_int_equal(ga_arena_open(&a, "test", (bytes + 4095) / 4096 * 4096, &e), 0);
    return a;
}

#endif
