/* The device runtime on the device library, without a GPU: tests/device/probe runs one scenario per
 * process. A correct scenario must give the same bits in every order of threads, blocks and streams; an
 * error must be reported with its line. */
#include "scratch.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#ifndef GA_TEST_DEVICE
#define GA_TEST_DEVICE "out/.build/device"
#endif

enum { TEXT = 1 << 16, SETTINGS = 8 };

/* A process of the probe: its additional environment, and its output. */
typedef struct {
    const char *set[SETTINGS][2];
    int count;
    pid_t pid;
    int status; /* exit code; -1: ended by a signal */
    char out[96], err[96];
    char text[TEXT]; /* stderr */
    char checksum[64];
} process;

static void with(process *p, const char *name, const char *value) {
    assert_true(p->count < SETTINGS);
    p->set[p->count][0] = name;
    p->set[p->count++][1] = value;
}

static void read_whole(const char *path, char *to, size_t size) {
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, size - 1, f) : 0;
    to[n] = 0;
    if (f) fclose(f);
}

static void child(const process *p, const char *scenario) {
    setenv("LD_LIBRARY_PATH", GA_TEST_DEVICE "/lib", 1);
    unsetenv("GAGEN_KERNELS");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    for (int i = 0; i < p->count; i++)
        if (p->set[i][1])
            setenv(p->set[i][0], p->set[i][1], 1);
        else
            unsetenv(p->set[i][0]);
    int out = open(p->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = open(p->err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, 1);
    dup2(err, 2);
    execl(GA_TEST_DEVICE "/probe", "probe", scenario, (char *)NULL);
    _exit(127);
}

static void start(scratch *s, process *p, const char *scenario, int number) {
    snprintf(p->out, sizeof p->out, "%.80s/out%d", s->path, number);
    snprintf(p->err, sizeof p->err, "%.80s/err%d", s->path, number);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) child(p, scenario);
}

static void finish(process *p) {
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    read_whole(p->out, p->checksum, sizeof p->checksum);
    read_whole(p->err, p->text, sizeof p->text);
}

/* Modes of the device library. The checker has its own cache, since its kernels differ. */
enum { PLAIN, LAZY, CHECKED, MODES };

static void set_mode(scratch *s, process *p, int mode, const char *seed) {
    static char cache[MODES][128];
    snprintf(cache[mode], sizeof cache[mode], "%.80s/%s", s->path,
             mode == CHECKED ? "checked" : "plain");
    with(p, "GAGEN_KERNEL_CACHE", cache[mode]);
    with(p, "GAGEN_DEVICE_LAZY", mode == PLAIN ? "0" : "1");
    with(p, "GAGEN_DEVICE_CHECK", mode == CHECKED ? "1" : "0");
    with(p, "GAGEN_DEVICE_SEED", seed);
}

static process *run(scratch *s, const char *scenario, int mode, const char *seed) {
    static process p;
    memset(&p, 0, sizeof p);
    set_mode(s, &p, mode, seed);
    start(s, &p, scenario, 0);
    finish(&p);
    return &p;
}

static void expect(const process *p, const char *scenario, int status, const char *text) {
    if (p->status != status || !strstr(p->text, text))
        fail_msg("%s: exit %d with '%s', expected exit %d with '%s'", scenario, p->status, p->text,
                 status, text);
}

static const char *const seeds[] = {"0", "1", "2", "3"};

static void same_bits_in_every_order(void **state) {
    static const char *const scenarios[] = {"add",        "block_sum", "gemm",  "reverse",
                                            "warp_words", "streams",   "graph", "ring"};
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        char first[80] = "";
        for (int mode = PLAIN; mode < MODES; mode++)
            for (int seed = 0; seed < 4; seed++) {
                process *p = run(*state, scenarios[i], mode, seeds[seed]);
                expect(p, scenarios[i], 0, "");
                assert_string_equal(p->text, "");
                if (!*first) snprintf(first, sizeof first, "%s", p->checksum);
                assert_string_equal(p->checksum, first);
            }
        assert_memory_equal(first, "checksum ", 9);
    }
}

/* "kernels.cu:N", where line N ends in "// found: NAME". */
static void place_of(const char *name, char *out, size_t size) {
    char text[TEXT], mark[64], *at;
    int line = 1;
    read_whole(GA_TEST_DEVICE "/kernels.cu", text, sizeof text);
    snprintf(mark, sizeof mark, "// found: %s\n", name);
    at = strstr(text, mark);
    if (!at) fail_msg("no line is marked %s", mark);
    for (const char *c = text; c < at; c++) line += *c == '\n';
    snprintf(out, size, "kernels.cu:%d", line);
}

static void wrong_kernels_are_named(void **state) {
    static const struct {
        const char *scenario, *kind;
        bool marked;
    } wrongs[] = {
        {"missing_barrier", "device: race: read after write in shared memory", true},
        {"lock_step", "device: race: read after write in shared memory", true},
        {"out_of_bounds", "device: out of bounds: write of 4 bytes, 0 bytes after the end", true},
        {"shared_index", "device: out of bounds: index", true},
        {"uninitialised", "device: uninitialised read: shared memory", true},
        {"blocks", "device: race: write after write in global memory, between blocks", true},
        {"alignment", "device: misaligned:", true},
        {"uninitialised_arena", "device: uninitialised read: global memory", false},
        {"missing_wait", "device: race: read after write, kernel add and kernel accumulate", false},
        {"divergent_barrier", "device: barrier: threads of one block meet at different", false},
        {"left_lane", "device: dead lock: kernel wrong_left_lane", false},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        for (int seed = 0; seed < 4; seed++) {
            char place[64] = "";
            process *p = run(*state, wrongs[i].scenario, CHECKED, seeds[seed]);
            bool swapped = !strstr(p->text, wrongs[i].kind) &&
                           strstr(p->text, "device: race: write after read");
            expect(p, wrongs[i].scenario, 3, swapped ? "device: race:" : wrongs[i].kind);
            expect(p, wrongs[i].scenario, 3, "CUDA_ERROR_LAUNCH_FAILED (719)");
            if (wrongs[i].marked && !swapped) {
                place_of(wrongs[i].scenario, place, sizeof place);
                expect(p, wrongs[i].scenario, 3, place);
            }
        }
}

static void early_reuse_shows_in_lazy_streams(void **state) {
    expect(run(*state, "early_reuse", PLAIN, "0"), "early_reuse", 0, "");
    for (int seed = 0; seed < 4; seed++)
        expect(run(*state, "early_reuse", LAZY, seeds[seed]), "early_reuse", 2, "probe: ring:");
}

static void misuse_is_refused(void **state) {
    expect(run(*state, "unjoined", PLAIN, "0"), "unjoined", 3,
           "CUDA_ERROR_STREAM_CAPTURE_UNJOINED (904)");
    expect(run(*state, "sync_in_capture", PLAIN, "0"), "sync_in_capture", 3,
           "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)");
    expect(run(*state, "too_many_threads", PLAIN, "0"), "too_many_threads", 3,
           "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)");
    expect(run(*state, "out_of_memory", PLAIN, "0"), "out_of_memory", 3,
           "an arena of 1125899906842624 bytes does not fit");
}

static const char *free_port(void) {
    static char text[16];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &bytes), 0);
    close(s);
    snprintf(text, sizeof text, "%d", ntohs(a.sin_port));
    return text;
}

static void start_rank(scratch *s, process *p, const char *scenario, int rank, const char *port,
                       int mode, const char *seed) {
    memset(p, 0, sizeof *p);
    set_mode(s, p, mode, seed);
    with(p, "WORLD_SIZE", "2");
    with(p, "RANK", rank ? "1" : "0");
    with(p, "MASTER_ADDR", "127.0.0.1");
    with(p, "MASTER_PORT", port);
    start(s, p, scenario, rank);
}

static process ranks[2];

static void two_ranks_reduce_in_a_graph(void **state) {
    char first[80] = "";
    for (int seed = 0; seed < 4; seed++)
        for (int mode = PLAIN; mode < MODES; mode++) {
            const char *port = free_port();
            for (int r = 0; r < 2; r++)
                start_rank(*state, &ranks[r], "nccl", r, port, mode, seeds[seed]);
            for (int r = 0; r < 2; r++) {
                finish(&ranks[r]);
                expect(&ranks[r], "nccl", 0, "");
                if (!*first) snprintf(first, sizeof first, "%s", ranks[r].checksum);
                assert_string_equal(ranks[r].checksum, first);
            }
        }
}

static void ranks_that_disagree_are_named(void **state) {
    const char *port = free_port();
    for (int r = 0; r < 2; r++) start_rank(*state, &ranks[r], "nccl_disagree", r, port, PLAIN, "0");
    for (int r = 0; r < 2; r++) {
        finish(&ranks[r]);
        expect(&ranks[r], "nccl_disagree", 3, "meets another collective of rank");
    }
}

static int knock(const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)atoi(port)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timespec pause = {0, 20000000};
    for (int i = 0; i < 500; i++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)&a, sizeof a) == 0) return s;
        close(s);
        nanosleep(&pause, NULL);
    }
    return -1;
}

static void strangers_are_dropped(void **state) {
    const char *port = free_port();
    start_rank(*state, &ranks[0], "nccl", 0, port, PLAIN, "0");
    int stranger = knock(port), silent = knock(port);
    assert_true(stranger >= 0 && silent >= 0);
    assert_true(send(stranger, "GET / HTTP/1.0\r\n\r\n12345678901234567890", 38, MSG_NOSIGNAL) > 0);
    start_rank(*state, &ranks[1], "nccl", 1, port, PLAIN, "0");
    for (int r = 0; r < 2; r++) {
        finish(&ranks[r]);
        expect(&ranks[r], "nccl", 0, "");
    }
    close(stranger);
    close(silent);
}

static void environment_is_checked(void **state) {
    static const struct {
        const char *rank, *size, *port, *text;
        int status;
    } cases[] = {
        {"x", "2", "29500", "RANK: 'x' found", 1},
        {"2", "2", "29500", "RANK: 2 found, less than WORLD_SIZE (2) expected", 1},
        {NULL, "2", "29500", "WORLD_SIZE is set and RANK is not", 1},
        {"0", NULL, "29500", "RANK is set and WORLD_SIZE is not", 1},
        {"0", "2", "99999", "MASTER_PORT: '99999' found", 1},
        {"0", "2", NULL, "MASTER_PORT is not set", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        process *p = &ranks[0];
        memset(p, 0, sizeof *p);
        set_mode(*state, p, PLAIN, "0");
        with(p, "RANK", cases[i].rank);
        with(p, "WORLD_SIZE", cases[i].size);
        with(p, "MASTER_ADDR", "127.0.0.1");
        with(p, "MASTER_PORT", cases[i].port);
        start(*state, p, "nccl", 0);
        finish(p);
        expect(p, cases[i].text, cases[i].status, cases[i].text);
    }
}

static process *run_cached(scratch *s, const char *cache, const char *compiler,
                           const char *kernels) {
    static process p;
    memset(&p, 0, sizeof p);
    with(&p, "GAGEN_KERNEL_CACHE", cache);
    with(&p, "GAGEN_DEVICE_CXX", compiler);
    with(&p, "GAGEN_KERNELS", kernels);
    start(s, &p, "add", 0);
    finish(&p);
    return &p;
}

/* Flips one byte in the middle of the only file of the folder. */
static void damage(const char *cache) {
    char command[256];
    snprintf(command, sizeof command,
             "f=$(ls %s/*.cubin) && printf X | dd of=\"$f\" bs=1 seek=20000 "
             "conv=notrunc 2>/dev/null",
             cache);
    assert_int_equal(system(command), 0);
}

static void cache_is_used_and_not_trusted(void **state) {
    scratch *s = *state;
    char cache[128];
    snprintf(cache, sizeof cache, "%.80s/cache", s->path);
    expect(run_cached(s, cache, "false", NULL), "no compiler", 2, "NVRTC_ERROR_COMPILATION");
    expect(run_cached(s, cache, "g++", NULL), "filled", 0, "");
    expect(run_cached(s, cache, "false", NULL), "used", 0, "");
    damage(cache);
    expect(run_cached(s, cache, "false", NULL), "damaged", 2, "NVRTC_ERROR_COMPILATION");
    expect(run_cached(s, cache, "g++", NULL), "healed", 0, "");
    expect(run_cached(s, cache, "false", NULL), "used again", 0, "");
    assert_int_equal(chmod(cache, 0777), 0);
    expect(run_cached(s, cache, "false", NULL), "writable by all", 2, "NVRTC_ERROR_COMPILATION");
    expect(run_cached(s, cache, "g++", NULL), "writable by all", 0, "not used");
    expect(run_cached(s, "/proc/no/such", "g++", NULL), "no folder possible", 0, "");
}

static void edited_kernels_are_taken(void **state) {
    scratch *s = *state;
    char path[128], text[TEXT], *at;
    FILE *f;
    snprintf(path, sizeof path, "%.80s/kernels.cu", s->path);
    read_whole(GA_TEST_DEVICE "/kernels.cu", text, sizeof text);
    at = strstr(text, "a[i] + b[i]");
    assert_non_null(at);
    at[5] = '-';
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    expect(run_cached(s, "", "g++", s->path), "edited", 2, "probe: add:");
    at[5] = '$';
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    expect(run_cached(s, "", "g++", s->path), "broken", 1, "kernels.cu:");
    expect(run_cached(s, "", "g++", "/proc/no"), "missing", 1,
           "/proc/no/kernels.cu: cannot be read");
}

static void a_machine_without_a_driver_is_told(void **state) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) {
        dlclose(driver);
        skip();
    }
    process *p = &ranks[0];
    memset(p, 0, sizeof *p);
    with(p, "LD_LIBRARY_PATH", "");
    start(*state, p, "add", 0);
    finish(p);
    expect(p, "no driver", 3, "libcuda.so.1: not found");
}

/* The real compiler accepts the same text, for both supported architectures. */
static void nvrtc_accepts_the_kernels(void **state) {
    (void)state;
    int status =
        system(GA_TEST_DEVICE "/nvrtc_check " GA_TEST_DEVICE "/kernels.cu 80 90 >/dev/null");
    if (WEXITSTATUS(status) == 77) {
        printf("NOT RUN: no libnvrtc\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void declarations_match_the_toolkit(void **state) {
    (void)state;
    if (access("/usr/local/cuda/include/cuda.h", R_OK) ||
        access("/usr/local/cuda/include/nccl.h", R_OK)) {
        printf("NOT RUN: no CUDA headers\n");
        skip();
    }
    assert_int_equal(
        system("cc -fsyntax-only -Iruntime -I/usr/local/cuda/include tests/nvrtc/abi_check.c"), 0);
}

int test_device(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest device[] = {
        TEST(same_bits_in_every_order),
        TEST(wrong_kernels_are_named),
        TEST(early_reuse_shows_in_lazy_streams),
        TEST(misuse_is_refused),
        TEST(two_ranks_reduce_in_a_graph),
        TEST(ranks_that_disagree_are_named),
        TEST(strangers_are_dropped),
        TEST(environment_is_checked),
        TEST(cache_is_used_and_not_trusted),
        TEST(edited_kernels_are_taken),
        TEST(a_machine_without_a_driver_is_told),
        cmocka_unit_test(nvrtc_accepts_the_kernels),
        cmocka_unit_test(declarations_match_the_toolkit),
    };
#undef TEST
    if (access(GA_TEST_DEVICE "/lib/libcuda.so.1", R_OK) || access(GA_TEST_DEVICE "/probe", X_OK)) {
        printf("NOT RUN: device: make device (needs g++)\n");
        return 0;
    }
    return cmocka_run_group_tests(device, NULL, NULL);
}
