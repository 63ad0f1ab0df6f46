/* box_limit.c: restricts the process of a spec to computing, allocating memory and writing into its
 * pipe. Invariant: both functions are called before the first byte of the spec is read. */
#define _GNU_SOURCE
#include "box.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef GA_BOX_ADDRESS_SPACE /* sanitizers map terabytes: their builds set 0, no limit */
#define GA_BOX_ADDRESS_SPACE (256u << 20)
#endif

#if defined(__x86_64__)
#define GA_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define GA_AUDIT_ARCH AUDIT_ARCH_AARCH64
#else
#error "the sandbox knows x86_64 and aarch64"
#endif

static bool close_all_but_first(void) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 1u, ~0u, 0u) == 0) return true;
#endif
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
    long last = files.rlim_cur > 65536 ? 65536 : (long)files.rlim_cur;
    for (long fd = 1; fd < last; fd++) close((int)fd);
    return true;
}

/* Resets the parent's signal handlers, so that a crash ends this process. */
static void restore_signals(void) {
    const int signals[] = { SIGSEGV, SIGBUS,  SIGILL, SIGFPE,  SIGABRT, SIGSYS,  SIGXCPU, SIGXFSZ, SIGPIPE,
                            SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
}

bool ga_box_limit(int fd) {
    restore_signals();
    if (fd != 0 && dup2(fd, 0) < 0) return false;
    if (!close_all_but_first()) return false;
    const struct {
        int resource;
        struct rlimit limit;
    } limits[] = {
        /* equal limits of CPU time would give SIGKILL, which hides the reason */
        { RLIMIT_CPU, { GA_BOX_CPU_HARD, GA_BOX_CPU_HARD + 1 } },
        { RLIMIT_FSIZE, { 0, 0 } },
        { RLIMIT_NOFILE, { 0, 0 } },
        { RLIMIT_CORE, { 0, 0 } },
        { RLIMIT_AS, { GA_BOX_ADDRESS_SPACE, GA_BOX_ADDRESS_SPACE } },
    };
    size_t count = sizeof limits / sizeof *limits - (GA_BOX_ADDRESS_SPACE == 0);
    for (size_t i = 0; i < count; i++) {
        if (setrlimit((__rlimit_resource_t)limits[i].resource, &limits[i].limit) != 0) return false;
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

/* low word of argument n of the call; both architectures are little-endian */
#define ARGUMENT(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW_CALL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), ALLOW

bool ga_box_filter(void) {
    struct sock_filter rules[] = {
        LOAD(offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, GA_AUDIT_ARCH, 1, 0),
        KILL,
        LOAD(offsetof(struct seccomp_data, nr)),
        ALLOW_CALL(SYS_brk),
        ALLOW_CALL(SYS_munmap),
        ALLOW_CALL(SYS_mremap),
        ALLOW_CALL(SYS_madvise),
        ALLOW_CALL(SYS_write),
        ALLOW_CALL(SYS_rt_sigreturn),
        ALLOW_CALL(SYS_clock_gettime),
        ALLOW_CALL(SYS_exit_group),
        ALLOW_CALL(SYS_sigaltstack), /* AddressSanitizer asks for it on exit */
        /* mmap: memory without a file, never executable */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
        KILL,
        LOAD(ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        KILL,
        LOAD(ARGUMENT(3)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 1, 0),
        KILL,
        ALLOW,
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
