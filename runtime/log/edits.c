/* edits.c: looks at kernels.c, runs the compiler, loads what it made. */
#define _GNU_SOURCE /* asprintf */
#include "log/edits.h"

#include "files/file.h"
#include "files/sha256.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH = GA_PATH_MAX + 128 };

extern char **environ;

/* The text of a file of the program, which free() frees; NULL if it cannot be read. */
static char *read_file(const ga_edits *w, const char *name) {
    char path[PATH];
    int64_t bytes;
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    const int fd = ga_file_open(AT_FDCWD, path, path, &bytes, NULL);
    if (fd < 0) return NULL;
    char *text = malloc((size_t)bytes + 1);
    const int64_t got = text ? ga_file_read(fd, text, bytes, 0) : -1;
    close(fd);
    if (got < 0) {
        free(text);
        return NULL;
    }
    text[got] = 0;
    return text;
}

int ga_edits_open(ga_edits *w, const char *folder, ga_err *e) {
    *w = (ga_edits){0};
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    char *line = read_file(w, ".command");
    const char *command = line ? strstr(line, ": ") : NULL;
    if (command) w->command = strndup(command + 2, strcspn(command + 2, "\n"));
    free(line);
    return w->command ? 0 : ga_fail(e, GA_INPUT, "%s/.command: has no command of a compiler: build with make", folder);
}

/* The file as it is now. A file that was written just now may be written again without another time. */
static bool look(const ga_edits *w, struct ga_seen *seen) {
    char path[PATH];
    struct stat st;
    struct timespec now;
    snprintf(path, sizeof path, "%s/kernels.c", w->folder);
    if (stat(path, &st) != 0) return false;
    clock_gettime(CLOCK_REALTIME, &now);
    *seen = (struct ga_seen){(int64_t)st.st_ino, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                             now.tv_sec - st.st_mtim.tv_sec > 1};
    return true;
}

bool ga_edits_found(ga_edits *w) {
    const struct ga_seen *last = &w->seen;
    struct ga_seen now;
    if (!look(w, &now)) return false;
    if (last->settled && now.inode == last->inode && now.bytes == last->bytes && now.seconds == last->seconds &&
        now.nanoseconds == last->nanoseconds)
        return false;
    char *text = read_file(w, "kernels.c");
    if (!text) return false;
    w->seen = now;
    if (w->found && strcmp(text, w->found) == 0) {
        free(text);
        return false;
    }
    free(w->found);
    w->found = text;
    return !w->text || strcmp(text, w->text) != 0;
}

void ga_edits_hash(const ga_edits *w, char hex[65]) {
    ga_sha256 h;
    ga_sha256_start(&h);
    ga_sha256_add(&h, w->found, strlen(w->found));
    ga_sha256_finish(&h, hex);
}

void ga_edits_forget(ga_edits *w) {
    w->seen.settled = false;
    free(w->found);
    w->found = NULL;
}

void ga_edits_use(ga_edits *w) {
    free(w->text);
    w->text = strdup(w->found);
}

/* Runs a command and waits for it: its status, -1 if it cannot be started or is killed. */
static int run(char *const *argv) {
    pid_t child;
    int status;
    if (posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) != 0) return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Writes FOLDER/name with a first line that lets the compiler speak of `name`. */
static int write_copy(const char *folder, const char *name, const char *text, ga_err *e) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    const bool written = f && fprintf(f, "#line 1 \"%s\"\n%s", name, text) > 0;
    if ((f && fclose(f) != 0) || !written)
        return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", path, strerror(errno));
    return 0;
}

/* -- why a text does not go with step.c */

/* The line of a text, at its beginning, that begins `head`; NULL: there is none. */
static const char *find_line(const char *text, const char *head, size_t n) {
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, head, n) == 0) return at;
    }
    return NULL;
}

/* Whether the parameters that begin at a and b are the same but for blanks. */
static bool same_parameters(const char *a, const char *b) {
    for (;; a++, b++) {
        while (isspace((unsigned char)*a)) a++;
        while (isspace((unsigned char)*b)) b++;
        if (*a != *b) return false;
        if (*a == ')' || *a == 0) return true;
    }
}

static int refuse(const ga_edits *w, ga_err *e) {
    static const char head[] = "static void ";
    const size_t n = strlen(head);
    for (const char *at = find_line(w->text ? w->text : "", head, n); at; at = find_line(at + n, head, n)) {
        const size_t name = strcspn(at + n, "(") + 1;
        const char *other = find_line(w->found, at, n + name);
        if (!other)
            return ga_fail(e, GA_INPUT, "no function %.*s, which step.c calls", (int)name - 1, at + n);
        if (!same_parameters(at + n + name, other + n + name))
            return ga_fail(e, GA_INPUT, "other parameters of %.*s than step.c gives", (int)name - 1, at + n);
    }
    return ga_fail(e, GA_INPUT, "the compiler's error, shown above");
}

/* -- modules */

static int compile(const ga_edits *w, const char *folder, ga_err *e) {
    char *step = read_file(w, "step.c"), *command = NULL;
    if (!step) return ga_fail(e, GA_INPUT, "%s/step.c: cannot be read", w->folder);
    int code = write_copy(folder, "kernels.c", w->found, e);
    if (code == 0) code = write_copy(folder, "step.c", step, e);
    free(step);
    GA_TRY(code);
    if (asprintf(&command, "cd \"$0\" && exec %s -DGA_WATCH -Wfatal-errors -Werror=implicit-function-declaration "
                 "-Werror=incompatible-pointer-types -Werror=int-conversion -fPIC -shared -Wl,-Bsymbolic "
                 " -o \"$1/step.so\" \"$1/step.c\" 1>&2", w->command) < 0)
        return ga_fail(e, GA_ENVIRONMENT, "no memory for the command of the compiler");
    ga_draw_clear();
    const int status = run((char *[]){"sh", "-c", command, (char *)w->folder, (char *)folder, NULL});
    free(command);
    return status == 0 ? 0 : refuse(w, e);
}

static int load(const char *folder, const char *name, void **module, const void **symbol, ga_err *e) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/step.so", folder);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*module) return ga_fail(e, GA_INPUT, "a module that cannot be loaded: %s", dlerror());
    *symbol = dlsym(*module, name);
    if (!*symbol) return ga_fail(e, GA_BUG, "%s: has no %s", path, name);
    return 0;
}

int ga_edits_load(ga_edits *w, const char *name, void **module, const void **symbol, ga_err *e) {
    char folder[GA_PATH_MAX + 64], path[PATH];
    static const char *const files[] = {"kernels.c", "step.c", "step.so"};
    snprintf(folder, sizeof folder, "%s/built", w->folder);
    GA_TRY(ga_file_folder(folder, "--watch-kernels", e));
    snprintf(folder, sizeof folder, "%s/built/module-%ld-%d", w->folder, (long)getpid(), ++w->made);
    GA_TRY(ga_file_folder(folder, "--watch-kernels", e));
    int code = compile(w, folder, e);
    if (code == 0) code = load(folder, name, module, symbol, e);
    for (int i = 0; i < 3; i++) { /* what is loaded stays in memory */
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
    return code;
}
