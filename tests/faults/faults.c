/* faults.c: a preloaded library that makes system calls fail where a test asks for it. Programs do not
 * contain it.
 *   GA_FAIL_AT=CLASS:N[+]=EFFECT[,...]   the N-th call of the class (from 1; +: and all after it) fails
 *   GA_FAIL_COUNTS=FILE                  appends `PROGRAM CLASS CALLS` for each class at exit
 *   GA_FAIL_PROGRAM=NAME                 only in the program of that name [train]; *: in all
 * EFFECT: the name of an errno; short: half of the bytes are read or written; kill: the process is
 * killed before the call, killed: after it, group: all processes of its group before it. Writes to stderr are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum {
    OPEN, READ, WRITE, FSYNC, RENAME, UNLINK, MKDIR, CLOSE, LIST, STAT, SEEK, TRUNCATE, LOCK, SPACE, MAP,
    ALLOC, THREAD, CLASSES
} call;

static const char *const names[CLASSES] = {
    "open", "read",     "write", "fsync", "rename", "unlink", "mkdir", "close", "list", "stat",
    "seek", "truncate", "lock",  "space", "map",    "alloc",  "thread"};

static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},   {"EACCES", EACCES},
              {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EROFS", EROFS},   {"EDQUOT", EDQUOT},
              {"EINVAL", EINVAL}, {"EAGAIN", EAGAIN}, {"ENOENT", ENOENT}, {"EBUSY", EBUSY}};

enum { NOTHING, SHORT = -1, KILL = -2, KILLED = -3, GROUP = -4, PLANS = 4 };

static struct {
    int class;
    long long n;
    bool on;
    int effect; /* an errno or one of the above */
} plans[PLANS];
static int plan_count;
static bool active;
static atomic_llong calls[CLASSES];

/* -- the plan ----------------------------------------------------------------------------------- */

static void refuse_plan(const char *text) {
    fprintf(stderr, "faults: GA_FAIL_AT: '%s' is not CLASS:N[+]=EFFECT\n", text);
    _exit(99);
}

static int effect_of(const char *text) {
    if (strcmp(text, "short") == 0) return SHORT;
    if (strcmp(text, "kill") == 0) return KILL;
    if (strcmp(text, "killed") == 0) return KILLED;
    if (strcmp(text, "group") == 0) return GROUP;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(text, errors[i].name) == 0) return errors[i].number;
    return NOTHING;
}

static void add_plan(const char *text) {
    char class_name[16], effect[16], more[2] = "";
    int class = 0;
    long long n = 0;
    if (sscanf(text, "%15[a-z]:%lld%1[+]=%15s", class_name, &n, more, effect) != 4 &&
        sscanf(text, "%15[a-z]:%lld=%15s", class_name, &n, effect) != 3)
        refuse_plan(text);
    while (class < CLASSES && strcmp(names[class], class_name) != 0) class++;
    if (class == CLASSES || n < 1 || plan_count == PLANS || !effect_of(effect)) refuse_plan(text);
    plans[plan_count].class = class;
    plans[plan_count].n = n;
    plans[plan_count].on = *more != 0;
    plans[plan_count++].effect = effect_of(effect);
}

__attribute__((constructor)) static void start(void) {
    char plan[256];
    const char *at = getenv("GA_FAIL_AT"), *program = getenv("GA_FAIL_PROGRAM");
    if (!program) program = "train";
    if (strcmp(program, "*") != 0 && strcmp(program_invocation_short_name, program) != 0) return;
    snprintf(plan, sizeof plan, "%s", at ? at : "");
    char *rest = plan;
    for (char *one = strtok_r(plan, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) add_plan(one);
    active = true;
}

__attribute__((destructor)) static void finish(void) {
    const char *path = getenv("GA_FAIL_COUNTS");
    FILE *file = active && path ? fopen(path, "a") : NULL;
    active = false;
    if (!file) return;
    for (int i = 0; i < CLASSES; i++)
        fprintf(file, "%s %s %lld\n", program_invocation_short_name, names[i], (long long)calls[i]);
    fclose(file);
}

/* The effect of this call, 0 for none. */
static int next(call c) {
    if (!active) return NOTHING;
    long long n = atomic_fetch_add(&calls[c], 1) + 1;
    for (int i = 0; i < plan_count; i++) {
        if (plans[i].class != (int)c || (plans[i].on ? n < plans[i].n : n != plans[i].n)) continue;
        if (plans[i].effect == KILL) kill(getpid(), SIGKILL);
        if (plans[i].effect == GROUP) kill(0, SIGKILL);
        return plans[i].effect;
    }
    return NOTHING;
}

static long after(int effect, long result) {
    if (effect == KILLED) kill(getpid(), SIGKILL);
    return result;
}

/* The function of libc behind a name; each has its own type. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call that fails as a whole: its value is `failed` with errno set. */
#define CALL(c, failed, expression)                                                                \
    do {                                                                                           \
        int effect_ = next(c);                                                                     \
        if (effect_ > 0) {                                                                         \
            errno = effect_;                                                                       \
            return failed;                                                                         \
        }                                                                                          \
        return (__typeof__(expression))after(effect_, (long)(expression));                         \
    } while (0)

/* -- files -------------------------------------------------------------------------------------- */

static mode_t mode_of(int flags, va_list args) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

static int open_at(int at, const char *path, int flags, mode_t mode) {
    CALL(OPEN, -1, (int)syscall(SYS_openat, at, path, flags, mode));
}

#define OPENING(name, parameters, at)                                                              \
    int name parameters {                                                                          \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_at(at, path, flags, mode);                                                     \
    }
OPENING(open, (const char *path, int flags, ...), AT_FDCWD)
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENING(openat, (int at, const char *path, int flags, ...), at)
OPENING(openat64, (int at, const char *path, int flags, ...), at)

/* Reads and writes may also transfer half of the bytes. */
#define TRANSFER(c, n, expression)                                                                 \
    int effect = next(c);                                                                          \
    if (effect > 0) {                                                                              \
        errno = effect;                                                                            \
        return -1;                                                                                 \
    }                                                                                              \
    if (effect == SHORT && n > 1) n /= 2;                                                          \
    return after(effect, (long)(expression))

ssize_t read(int fd, void *to, size_t n) {
    TRANSFER(READ, n, syscall(SYS_read, fd, to, n));
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    TRANSFER(READ, n, syscall(SYS_pread64, fd, to, n, at));
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at) {
    return pread(fd, to, n, at);
}

ssize_t write(int fd, const void *from, size_t n) {
    if (fd == STDERR_FILENO) return syscall(SYS_write, fd, from, n);
    TRANSFER(WRITE, n, syscall(SYS_write, fd, from, n));
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    TRANSFER(WRITE, n, syscall(SYS_pwrite64, fd, from, n, at));
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) {
    return pwrite(fd, from, n, at);
}

int fsync(int fd) {
    CALL(FSYNC, -1, (int)syscall(SYS_fsync, fd));
}

/* A failing close closes the descriptor nevertheless. */
int close(int fd) {
    int effect = next(CLOSE), rc = (int)syscall(SYS_close, fd);
    if (effect > 0) {
        errno = effect;
        return -1;
    }
    return (int)after(effect, rc);
}

int rename(const char *from, const char *to) {
    CALL(RENAME, -1, (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int a, const char *from, int b, const char *to) {
    CALL(RENAME, -1, (int)syscall(SYS_renameat2, a, from, b, to, 0));
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    CALL(RENAME, -1, (int)syscall(SYS_renameat2, a, from, b, to, flags));
}

int unlink(const char *path) {
    CALL(UNLINK, -1, (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int unlinkat(int at, const char *path, int flags) {
    CALL(UNLINK, -1, (int)syscall(SYS_unlinkat, at, path, flags));
}

int mkdir(const char *path, mode_t mode) {
    CALL(MKDIR, -1, (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int mkdirat(int at, const char *path, mode_t mode) {
    CALL(MKDIR, -1, (int)syscall(SYS_mkdirat, at, path, mode));
}

int stat(const char *path, struct stat *st) {
    CALL(STAT, -1, REAL(stat)(path, st));
}

int fstat(int fd, struct stat *st) {
    CALL(STAT, -1, REAL(fstat)(fd, st));
}

/* ENOSPC: the disk is full, and says so. */
int fstatvfs(int fd, struct statvfs *v) {
    int effect = next(SPACE);
    if (effect <= 0 || effect == ENOSPC) {
        int rc = REAL(fstatvfs)(fd, v);
        if (effect == ENOSPC) v->f_bavail = 1;
        return (int)after(effect, rc);
    }
    errno = effect;
    return -1;
}

off_t lseek(int fd, off_t at, int whence) {
    CALL(SEEK, -1, (off_t)syscall(SYS_lseek, fd, at, whence));
}

int ftruncate(int fd, off_t size) {
    CALL(TRUNCATE, -1, (int)syscall(SYS_ftruncate, fd, size));
}

int flock(int fd, int operation);
int flock(int fd, int operation) {
    CALL(LOCK, -1, (int)syscall(SYS_flock, fd, operation));
}

/* The runtime lists folders by this number, since opendir allocates. */
long syscall(long number, ...) {
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_getdents64) {
        int effect = next(LIST);
        if (effect > 0) {
            errno = effect;
            return -1;
        }
    }
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* -- memory and threads ------------------------------------------------------------------------- */

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from) {
    int effect = next(MAP);
    if (effect <= 0) return REAL(mmap)(at, n, protection, flags, fd, from);
    errno = effect;
    return MAP_FAILED;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);

static bool no_memory(void) {
    if (next(ALLOC) <= 0) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n) {
    return no_memory() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return no_memory() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n) {
    return no_memory() ? NULL : __libc_realloc(old, n);
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*body)(void *), void *arg) {
    int effect = next(THREAD);
    return effect > 0 ? effect : REAL(pthread_create)(t, a, body, arg);
}
