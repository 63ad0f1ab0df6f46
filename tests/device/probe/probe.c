/* probe.c: runs one scenario of the device runtime, named on the command line; the tests start it
 * with the device library in LD_LIBRARY_PATH, or without it on a machine that has a device. Prints
 * a checksum of the result's bits; exits with the negated status. */
#include "device/device.h"
#include "device/device_nccl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__asm__(
    ".pushsection .rodata\n"
    ".globl kernels_text\nkernels_text:\n.incbin \"" GA_KERNELS
    "\"\n"
    ".globl kernels_end\nkernels_end:\n.byte 0\n.popsection\n");
extern const char kernels_text[], kernels_end[];

#define KERNELS(X)                                                                             \
    X(add)                                                                                     \
    X(block_sum)                                                                               \
    X(gemm) X(reverse) X(warp_words) X(accumulate) X(wrong_missing_barrier) X(wrong_lock_step) \
        X(wrong_out_of_bounds) X(wrong_shared_index) X(wrong_uninitialised) X(wrong_blocks)    \
            X(wrong_alignment) X(wrong_divergent_barrier) X(wrong_left_lane)
#define NUMBER(name) K_##name,
#define NAME(name) #name,
enum { KERNELS(NUMBER) KERNEL_COUNT };
static const char *const kernel_names[] = {KERNELS(NAME)};

enum { N = 4096 };

typedef struct {
    ga_device *device;
    ga_kernel kernel[KERNEL_COUNT];
    ga_cuda_stream main, side;
    ga_event ready, joined;
    ga_address a, b, c; /* N doubles each */
    float *pinned;      /* N floats */
} probe;

#define ARGUMENTS(...) \
    (void *[]) {       \
        __VA_ARGS__    \
    }

static void print_checksum(const void *data, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    printf("checksum %016llx\n", (unsigned long long)h);
}

static float value(int i, int salt) {
    return (float)((i * 2654435761u + (unsigned)salt * 40503u) % 2001) / 1000.0f - 1.0f;
}

static int fill(probe *p, ga_address to, int salt, int n, ga_err *e) {
    float *host = calloc((size_t)n, sizeof *host);
    for (int i = 0; i < n; i++) host[i] = value(i, salt);
    int code = ga_device_upload(p->device, to, host, (size_t)n * sizeof *host, e);
    free(host);
    return code;
}

static int launch(probe *p, ga_cuda_stream s, int k, unsigned blocks, unsigned threads, void **args,
                  ga_err *e) {
    ga_launch_shape shape = {{blocks, 1, 1}, {threads, 1, 1}, 0, getenv("PROBE_DEPENDENT") != NULL};
    return ga_device_launch(p->device, s, p->kernel[k], &shape, args, e);
}

static int open_probe(probe *p, ga_err *e) {
    static const char *const options[] = {"--fmad=true"};
    ga_kernel_source source = {.file = "kernels.cu",
                               .text = kernels_text,
                               .bytes = (size_t)(kernels_end - kernels_text),
                               .names = kernel_names,
                               .options = options,
                               .name_count = KERNEL_COUNT,
                               .option_count = 1};
    GA_TRY(ga_device_open(&p->device, -1, e));
    GA_TRY(ga_device_load_kernels(p->device, &source, p->kernel, e));
    GA_TRY(ga_device_stream(p->device, &p->main, e));
    GA_TRY(ga_device_stream(p->device, &p->side, e));
    GA_TRY(ga_device_event(p->device, &p->ready, e));
    GA_TRY(ga_device_event(p->device, &p->joined, e));
    GA_TRY(ga_device_arena(p->device, N * sizeof(double), &p->a, e));
    GA_TRY(ga_device_arena(p->device, N * sizeof(double), &p->b, e));
    GA_TRY(ga_device_arena(p->device, N * sizeof(double), &p->c, e));
    GA_TRY(ga_device_pinned(p->device, N * sizeof(float), (void **)&p->pinned, e));
    GA_TRY(fill(p, p->a, 1, N, e));
    return fill(p, p->b, 2, N, e);
}

static int wrong(ga_err *e, const char *what, double found, double expected) {
    return ga_fail(e, GA_BUG, "%s: %.9g found, %.9g expected", what, found, expected);
}

static int run_add(probe *p, ga_err *e) {
    int n = N - 3;
    float out[N];
    for (int i = 0; i < 2; i++) /* the second one behind the first, which may not have ended */
        GA_TRY(launch(p, p->main, K_add, 5, 256, ARGUMENTS(&p->c, &p->a, &p->b, &n), e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    GA_TRY(ga_device_download(p->device, out, p->c, sizeof out, e));
    for (int i = 0; i < n; i++)
        if (out[i] != value(i, 1) + value(i, 2))
            return wrong(e, "add", out[i], value(i, 1) + value(i, 2));
    print_checksum(out, (size_t)n * sizeof *out);
    return GA_OK;
}

static int run_block_sum(probe *p, ga_err *e) {
    double in[3 * 700], out[6];
    int n = 700;
    for (int i = 0; i < 2100; i++) in[i] = value(i, 3) + 1e-9 * i;
    GA_TRY(ga_device_upload(p->device, p->a, in, sizeof in, e));
    GA_TRY(launch(p, p->main, K_block_sum, 3, 256, ARGUMENTS(&p->c, &p->a, &n), e));
    GA_TRY(ga_device_download(p->device, out, p->c, sizeof out, e));
    for (int b = 0; b < 3; b++) {
        double sum = 0, greatest = -2;
        for (int i = 0; i < n; i++) sum += in[b * n + i];
        for (int i = 0; i < 256; i++) greatest = fmax(greatest, in[b * n + i]);
        if (fabs(out[2 * b] - sum) > 1e-12 * n) return wrong(e, "block sum", out[2 * b], sum);
        if (out[2 * b + 1] != greatest) return wrong(e, "block max", out[2 * b + 1], greatest);
    }
    print_checksum(out, sizeof out);
    return GA_OK;
}

static int run_gemm(probe *p, ga_err *e) {
    int m = 37, n = 50, k = 41;
    float out[37 * 50];
    ga_launch_shape shape = {{4, 3, 1}, {256, 1, 1}, 0, false};
    GA_TRY(ga_device_launch(p->device, p->main, p->kernel[K_gemm], &shape,
                            ARGUMENTS(&p->c, &p->a, &p->b, &m, &n, &k), e));
    GA_TRY(ga_device_download(p->device, out, p->c, sizeof out, e));
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++) sum += (double)value(i * k + l, 1) * value(l * n + j, 2);
            if (fabs(out[i * n + j] - sum) > 1e-5) return wrong(e, "gemm", out[i * n + j], sum);
        }
    print_checksum(out, sizeof out);
    return GA_OK;
}

static int run_reverse(probe *p, ga_err *e) {
    float out[128];
    ga_launch_shape shape = {{1, 1, 1}, {128, 1, 1}, 128 * sizeof(float), false};
    GA_TRY(ga_device_launch(p->device, p->main, p->kernel[K_reverse], &shape, ARGUMENTS(&p->a), e));
    GA_TRY(ga_device_download(p->device, out, p->a, sizeof out, e));
    for (int i = 0; i < 128; i++)
        if (out[i] != value(127 - i, 1)) return wrong(e, "reverse", out[i], value(127 - i, 1));
    print_checksum(out, sizeof out);
    return GA_OK;
}

static int run_warp_words(probe *p, ga_err *e) {
    static const int expected[] = {128, 63, 1, 1918, 51, 19};
    struct {
        double factor;
        int add;
    } s = {2.5, 9};
    int out[6] = {0};
    GA_TRY(ga_device_upload(p->device, p->c, out, sizeof out, e));
    for (int i = 0; i < 2; i++)
        GA_TRY(launch(p, p->main, K_warp_words, 1, 64, ARGUMENTS(&p->c, &s), e));
    GA_TRY(ga_device_download(p->device, out, p->c, sizeof out, e));
    for (int i = 0; i < 6; i++)
        if (out[i] != expected[i]) return wrong(e, "warp words", out[i], expected[i]);
    print_checksum(out, sizeof out);
    return GA_OK;
}

/* c = a + b on `main`, the sum of c on `side`, back on `main`: a fork and a join. */
static int fork_and_join(probe *p, bool wait, ga_err *e) {
    int n = 256;
    ga_address sum = p->c + N * sizeof(float);
    GA_TRY(launch(p, p->main, K_add, 2, 128, ARGUMENTS(&p->c, &p->a, &p->b, &n), e));
    GA_TRY(ga_device_record(p->device, p->ready, p->main, e));
    if (wait) GA_TRY(ga_device_wait(p->device, p->side, p->ready, e));
    GA_TRY(launch(p, p->side, K_accumulate, 1, 32, ARGUMENTS(&sum, &p->c, &n), e));
    GA_TRY(ga_device_record(p->device, p->joined, p->side, e));
    return ga_device_wait(p->device, p->main, p->joined, e);
}

static int check_sum(probe *p, int times, ga_err *e) {
    double expected = 0, out;
    for (int i = 0; i < times * 256; i++)
        expected += (double)(value(i % 256, 1) + value(i % 256, 2));
    GA_TRY(ga_device_download(p->device, &out, p->c + N * sizeof(float), sizeof out, e));
    if (!(fabs(out - expected) < 1e-9)) return wrong(e, "sum on the side stream", out, expected);
    print_checksum(&out, sizeof out);
    return GA_OK;
}

static int clear_sum(probe *p, ga_err *e) {
    GA_TRY(ga_device_fill(p->device, p->main, p->c + N * sizeof(float), 0, sizeof(double), e));
    GA_TRY(ga_device_record(p->device, p->ready, p->main, e));
    return ga_device_wait(p->device, p->side, p->ready, e);
}

static int run_streams(probe *p, ga_err *e) {
    GA_TRY(clear_sum(p, e));
    GA_TRY(fork_and_join(p, true, e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    return check_sum(p, 1, e);
}

static int run_missing_wait(probe *p, ga_err *e) {
    GA_TRY(clear_sum(p, e));
    GA_TRY(fork_and_join(p, false, e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    return check_sum(p, 1, e);
}

static int run_graph(probe *p, ga_err *e) {
    ga_graph *graph;
    const ga_device_counters *counters = ga_device_get_counters(p->device);
    GA_TRY(clear_sum(p, e));
    GA_TRY(ga_device_capture_begin(p->device, p->main, e));
    GA_TRY(fork_and_join(p, true, e));
    GA_TRY(ga_device_capture_end(p->device, p->main, &graph, e));
    for (int i = 0; i < 3; i++) GA_TRY(ga_device_graph_launch(p->device, graph, p->main, e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    if (counters->graph_launches != 3 || counters->graph_kernels != 6 ||
        counters->kernel_launches != 0)
        return wrong(e, "kernels in graphs", (double)counters->graph_kernels, 6);
    if (counters->allocations != 4 || counters->device_bytes != 3 * N * (int)sizeof(double))
        return wrong(e, "allocations", (double)counters->allocations, 4);
    return check_sum(p, 3, e);
}

static int run_unjoined(probe *p, ga_err *e) {
    ga_graph *graph;
    int n = 256;
    GA_TRY(ga_device_capture_begin(p->device, p->main, e));
    GA_TRY(ga_device_record(p->device, p->ready, p->main, e));
    GA_TRY(ga_device_wait(p->device, p->side, p->ready, e));
    GA_TRY(launch(p, p->side, K_add, 2, 128, ARGUMENTS(&p->c, &p->a, &p->b, &n), e));
    return ga_device_capture_end(p->device, p->main, &graph, e);
}

static int run_sync_in_capture(probe *p, ga_err *e) {
    GA_TRY(ga_device_capture_begin(p->device, p->main, e));
    return ga_device_sync(p->device, p->main, e);
}

/* Two slots of pinned memory in turn; `early`: a slot is written again before its copy is done. */
static int ring(probe *p, bool early, ga_err *e) {
    float out[64], expected[64] = {0};
    ga_event passed[2] = {p->ready, p->joined};
    int n = 64;
    GA_TRY(ga_device_fill(p->device, p->main, p->c, 0, sizeof out, e));
    for (int step = 0; step < 6; step++) {
        float *slot = p->pinned + step % 2 * 64;
        if (step >= 2 && !early) GA_TRY(ga_device_wait_host(p->device, passed[step % 2], e));
        for (int i = 0; i < n; i++) expected[i] += slot[i] = (float)(step * 64 + i);
        GA_TRY(ga_device_send(p->device, p->main, p->a, slot, sizeof out, e));
        GA_TRY(ga_device_record(p->device, passed[step % 2], p->main, e));
        GA_TRY(launch(p, p->main, K_add, 1, 64, ARGUMENTS(&p->c, &p->c, &p->a, &n), e));
    }
    GA_TRY(ga_device_fetch(p->device, p->main, p->pinned, p->c, sizeof out, e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    for (int i = 0; i < n; i++)
        if (p->pinned[i] != expected[i]) return wrong(e, "ring", p->pinned[i], expected[i]);
    print_checksum(p->pinned, sizeof out);
    return GA_OK;
}

static int run_ring(probe *p, ga_err *e) {
    return ring(p, false, e);
}

static int run_early_reuse(probe *p, ga_err *e) {
    return ring(p, true, e);
}

static int run_reduced(probe *p, ga_nccl *nccl, bool connected, ga_err *e) {
    ga_graph *graph;
    float out[1000];
    int rank = ga_nccl_rank(nccl), size = ga_nccl_size(nccl), n = 1000;
    const ga_device_counters *counters = ga_device_get_counters(p->device);
    if (connected) {
        GA_TRY(ga_nccl_all_reduce(nccl, p->main, p->b, (size_t)n, GA_F32, e));
        GA_TRY(ga_nccl_sync(nccl, p->main, e));
    }
    GA_TRY(fill(p, p->b, 10 + rank, n, e));
    GA_TRY(ga_device_capture_begin(p->device, p->main, e));
    GA_TRY(launch(p, p->main, K_add, 4, 256, ARGUMENTS(&p->c, &p->a, &p->b, &n), e));
    GA_TRY(ga_nccl_all_reduce(nccl, p->main, p->c, (size_t)n, GA_F32, e));
    GA_TRY(ga_device_capture_end(p->device, p->main, &graph, e));
    for (int i = 0; i < 3; i++) GA_TRY(ga_device_graph_launch(p->device, graph, p->main, e));
    GA_TRY(ga_nccl_sync(nccl, p->main, e));
    GA_TRY(ga_device_download(p->device, out, p->c, sizeof out, e));
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < size; r++) sum += value(i, 1) + value(i, 10 + r);
        if (out[i] != sum) return wrong(e, "all-reduce", out[i], sum);
    }
    if (counters->collectives != 4 || counters->collective_bytes != 16000)
        return wrong(e, "collectives", (double)counters->collectives, 4);
    print_checksum(out, sizeof out);
    return GA_OK;
}

/* Reduce-scatter, then all-gather of twice the own cut, as in a sharded update. */
static int run_sharded(probe *p, ga_nccl *nccl, const int64_t *cuts, ga_err *e) {
    double in[120], out[120];
    const int rank = ga_nccl_rank(nccl), size = ga_nccl_size(nccl);
    ga_exchange x = {.kind = GA_REDUCE_SCATTER, .n = 120, .cuts = cuts, .type = GA_F64, .wire = GA_F64};
    for (int i = 0; i < 120; i++) in[i] = value(i, rank);
    GA_TRY(ga_device_upload(p->device, p->a, in, sizeof in, e));
    GA_TRY(ga_nccl_exchange(nccl, p->main, p->a, &x, e));
    GA_TRY(ga_nccl_sync(nccl, p->main, e));
    GA_TRY(ga_device_download(p->device, out, p->a, sizeof out, e));
    for (int64_t i = ga_cut(&x, rank, size); i < ga_cut(&x, rank + 1, size); i++) out[i] *= 2;
    GA_TRY(ga_device_upload(p->device, p->a, out, sizeof out, e));
    x.kind = GA_ALL_GATHER;
    GA_TRY(ga_nccl_exchange(nccl, p->main, p->a, &x, e));
    GA_TRY(ga_nccl_sync(nccl, p->main, e));
    GA_TRY(ga_device_download(p->device, out, p->a, sizeof out, e));
    for (int i = 0; i < 120; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++) sum += value(i, r);
        if (fabs(out[i] - 2 * sum) > 1e-12) return wrong(e, "shards", out[i], 2 * sum);
    }
    return GA_OK;
}

/* Numbers summed over the ranks, and the largest of them. */
static int run_small(probe *p, ga_nccl *nccl, ga_err *e) {
    const int rank = ga_nccl_rank(nccl), size = ga_nccl_size(nccl);
    double small[3] = {1, rank, rank};
    GA_TRY(ga_device_upload(p->device, p->a, small, sizeof small, e));
    GA_TRY(ga_nccl_small(nccl, p->main, p->a, 3, 1, e));
    GA_TRY(ga_nccl_sync(nccl, p->main, e));
    GA_TRY(ga_device_download(p->device, small, p->a, sizeof small, e));
    if (small[0] != size || small[1] != size * (size - 1) / 2) return wrong(e, "small sum", small[1], size);
    return small[2] == size - 1 ? GA_OK : wrong(e, "largest", small[2], size - 1);
}

static int nccl(probe *p, bool connected, ga_err *e) {
    ga_arena memory;
    ga_comm *comm = NULL;
    ga_nccl *nccl = NULL;
    GA_TRY(ga_arena_open(&memory, "comm", 16384, e));
    int code = ga_comm_open(&comm, &memory, NULL, e);
    if (code == 0) code = ga_comm_handshake(comm, 42, e);
    if (code == 0) code = ga_nccl_open(&nccl, p->device, comm, e);
    if (code == 0) code = run_reduced(p, nccl, connected, e);
    static const int64_t UNEVEN[5][5] = {[2] = {0, 20, 120}, [3] = {0, 0, 100, 120}, [4] = {0, 100, 100, 112, 120}};
    if (code == 0) code = run_sharded(p, nccl, NULL, e);
    if (code == 0 && ga_nccl_size(nccl) > 1) code = run_sharded(p, nccl, UNEVEN[ga_nccl_size(nccl)], e);
    if (code == 0) code = run_small(p, nccl, e);
    ga_nccl_close(nccl);
    ga_comm_close(comm);
    ga_arena_close(&memory);
    return code;
}

static int run_nccl(probe *p, ga_err *e) {
    return nccl(p, true, e);
}

static int run_nccl_unconnected(probe *p, ga_err *e) {
    return nccl(p, false, e);
}

/* The ranks disagree about the number of elements. */
static int run_nccl_disagree(probe *p, ga_err *e) {
    ga_arena memory;
    ga_comm *comm = NULL;
    ga_nccl *nccl = NULL;
    GA_TRY(ga_arena_open(&memory, "comm", 16384, e));
    int code = ga_comm_open(&comm, &memory, NULL, e);
    if (code == 0) code = ga_nccl_open(&nccl, p->device, comm, e);
    size_t n = comm && ga_comm_rank(comm) ? 10 : 11;
    if (code == 0) code = ga_nccl_all_reduce(nccl, p->main, p->a, n, GA_F32, e);
    if (code == 0) code = ga_nccl_sync(nccl, p->main, e);
    ga_nccl_close(nccl);
    ga_comm_close(comm);
    ga_arena_close(&memory);
    return code;
}

static int wrong_kernel(probe *p, int k, unsigned blocks, unsigned threads, void **args,
                        ga_err *e) {
    GA_TRY(launch(p, p->main, k, blocks, threads, args, e));
    GA_TRY(ga_device_sync(p->device, p->main, e));
    printf("not found\n");
    return GA_OK;
}

static int run_missing_barrier(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_missing_barrier, 1, 256, ARGUMENTS(&p->c, &p->a), e);
}

static int run_lock_step(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_lock_step, 1, 32, ARGUMENTS(&p->c, &p->a), e);
}

static int run_out_of_bounds(probe *p, ga_err *e) {
    int n = N * 2;
    return wrong_kernel(p, K_wrong_out_of_bounds, N * 2 / 256 + 1, 256, ARGUMENTS(&p->c, &n), e);
}

static int run_shared_index(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_shared_index, 1, 256, ARGUMENTS(&p->c), e);
}

static int run_uninitialised(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_uninitialised, 1, 256, ARGUMENTS(&p->c), e);
}

static int run_uninitialised_arena(probe *p, ga_err *e) {
    int n = 16;
    return wrong_kernel(p, K_add, 1, 32, ARGUMENTS(&p->a, &p->c, &p->b, &n), e);
}

static int run_blocks(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_blocks, 4, 256, ARGUMENTS(&p->a), e);
}

static int run_alignment(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_alignment, 1, 32, ARGUMENTS(&p->c, &p->a), e);
}

static int run_divergent_barrier(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_divergent_barrier, 1, 128, ARGUMENTS(&p->c), e);
}

static int run_left_lane(probe *p, ga_err *e) {
    return wrong_kernel(p, K_wrong_left_lane, 1, 64, ARGUMENTS(&p->c, &p->a), e);
}

static int run_too_many_threads(probe *p, ga_err *e) {
    int n = 16;
    return wrong_kernel(p, K_add, 1, 512, ARGUMENTS(&p->c, &p->a, &p->b, &n), e);
}

static int run_ordinal(probe *p, ga_err *e) {
    (void)e;
    printf("device %d\n", ga_device_get_facts(p->device)->ordinal);
    return GA_OK;
}

static int run_out_of_memory(probe *p, ga_err *e) {
    ga_address address;
    return ga_device_arena(p->device, (size_t)1 << 50, &address, e);
}

static const struct {
    const char *name;
    int (*run)(probe *p, ga_err *e);
} scenarios[] = {
    {"add", run_add},
    {"block_sum", run_block_sum},
    {"gemm", run_gemm},
    {"reverse", run_reverse},
    {"warp_words", run_warp_words},
    {"streams", run_streams},
    {"graph", run_graph},
    {"ring", run_ring},
    {"nccl", run_nccl},
    {"nccl_unconnected", run_nccl_unconnected},
    {"nccl_disagree", run_nccl_disagree},
    {"missing_wait", run_missing_wait},
    {"unjoined", run_unjoined},
    {"sync_in_capture", run_sync_in_capture},
    {"early_reuse", run_early_reuse},
    {"missing_barrier", run_missing_barrier},
    {"lock_step", run_lock_step},
    {"out_of_bounds", run_out_of_bounds},
    {"shared_index", run_shared_index},
    {"uninitialised", run_uninitialised},
    {"uninitialised_arena", run_uninitialised_arena},
    {"blocks", run_blocks},
    {"alignment", run_alignment},
    {"divergent_barrier", run_divergent_barrier},
    {"left_lane", run_left_lane},
    {"too_many_threads", run_too_many_threads},
    {"ordinal", run_ordinal},
    {"out_of_memory", run_out_of_memory},
};

int main(int argc, char **argv) {
    probe p = {0};
    ga_err e = {0};
    int code = GA_OK;
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) != 0) continue;
        code = open_probe(&p, &e);
        if (code == 0) code = scenarios[i].run(&p, &e);
        ga_device_close(p.device);
        if (code < 0) fprintf(stderr, "probe: %s\n", e.msg);
        return -code;
    }
    fprintf(stderr, "usage: probe SCENARIO\n");
    return 64;
}
