/* nvrtc_check.c: compiles kernels with the real NVRTC, without a device, and prints the registers and memory
 * of each, behind a line with its version. usage: nvrtc_check FILE.cu ARCH..., for example
 * nvrtc_check out/NAME/kernels.cu 80 90a
 * nvrtc_check --ptx FILE.cu ARCH prints their instructions as PTX.
 * nvrtc_check --start FILE.cu ARCH FOLDER compiles them as a start with an empty cache does, into modules in FOLDER, and
 * prints its seconds.
 * exit: 0 success, 1 an error or a spill, 77 no libnvrtc (NOT RUN). */
#include "device/cuda_abi.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POINTER(result, name, arguments) result(*name) arguments;
#define NAME(result, name, arguments) #name,
typedef struct {
    GA_NVRTC_FUNCTIONS(POINTER)
} nvrtc;

static int open_nvrtc(nvrtc *n) {
    static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    static const char *const names[] = {GA_NVRTC_FUNCTIONS(NAME)};
    void *library = NULL, **functions = (void **)n;
    for (size_t i = 0; i < sizeof files / sizeof *files && !library; i++)
        library = dlopen(files[i], RTLD_NOW);
    if (!library) return 77;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        functions[i] = dlsym(library, names[i]);
        if (!functions[i]) {
            fprintf(stderr, "libnvrtc has no %s\n", names[i]);
            return 1;
        }
    }
    return 0;
}

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long bytes;
    if (f && fseek(f, 0, SEEK_END) == 0 && (bytes = ftell(f)) >= 0) {
        rewind(f);
        text = calloc(1, (size_t)bytes + 1);
        if (text && fread(text, 1, (size_t)bytes, f) != (size_t)bytes) {
            free(text);
            text = NULL;
        }
    }
    if (f) fclose(f);
    return text;
}

static long number_before(const char *line, const char *word) {
    const char *at = strstr(line, word);
    if (!at) return 0;
    while (at > line && at[-1] == ' ') at--;
    while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
    return strtol(at, NULL, 10);
}

static long number_after(const char *line, const char *word) {
    const char *at = strstr(line, word);
    return at ? strtol(at + strlen(word), NULL, 10) : 0;
}

/* ptxas -v writes, per kernel: "Compiling entry function 'k'", "N bytes stack frame, N bytes spill
 * stores, N bytes spill loads", "Used N registers, ..., N bytes smem". Returns the kernels that
 * spill. */
static int print_needs(char *log, const char *arch, int *kernels) {
    char name[128] = "?";
    long spills = 0, stack = 0;
    int bad = 0;
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        char *entry = strstr(line, "entry function '");
        if (entry) sscanf(entry, "entry function '%127[^']", name);
        if (strstr(line, "bytes stack frame")) {
            stack = number_before(line, "bytes stack frame");
            spills = number_before(line, "bytes spill stores") +
                     number_before(line, "bytes spill loads");
        }
        if (!strstr(line, "Used ")) continue;
        printf("sm_%s %-32s %3ld registers %6ld bytes shared %4ld bytes stack %4ld bytes spilled\n",
               arch, name, number_after(line, "Used "), number_before(line, "bytes smem"), stack,
               spills);
        bad += spills > 0;
        ++*kernels;
    }
    return bad;
}

static int check(const nvrtc *n, const char *path, const char *text, const char *arch) {
    char option[64];
    nvrtcProgram p = NULL;
    size_t bytes = 0;
    int kernels = 0, bad = 1;
    snprintf(option, sizeof option, "--gpu-architecture=sm_%s", arch);
    const char *options[] = {option, "--std=c++17", "--fmad=false", "--ptxas-options=-v"}; /* a program's, and -v */
    if (n->nvrtcCreateProgram(&p, text, path, 0, NULL, NULL) != NVRTC_SUCCESS) return 1;
    nvrtcResult r = n->nvrtcCompileProgram(p, 4, options);
    char *log = n->nvrtcGetProgramLogSize(p, &bytes) == NVRTC_SUCCESS ? calloc(1, bytes + 1) : NULL;
    if (log) n->nvrtcGetProgramLog(p, log);
    if (r != NVRTC_SUCCESS)
        fprintf(stderr, "%s: sm_%s: %s\n%s\n", path, arch, n->nvrtcGetErrorString(r),
                log ? log : "");
    else if (log) { /* the compiler waits behind each product of a warpgroup where it cannot follow its registers */
        const bool waits = strstr(log, "serialized") != NULL;
        if (waits) fprintf(stderr, "%s: sm_%s: wgmma is serialized\n%s\n", path, arch, log);
        bad = print_needs(log, arch, &kernels) + waits;
    }
    if (r == NVRTC_SUCCESS && bad)
        fprintf(stderr, "%s: sm_%s: %d kernels spill registers or wait for products\n", path, arch, bad);
    if (r == NVRTC_SUCCESS && !kernels) {
        fprintf(stderr, "%s: sm_%s: no kernel in it\n", path, arch);
        bad = 1;
    }
    free(log);
    n->nvrtcDestroyProgram(&p);
    return bad != 0;
}

/* Prints the kernels as PTX. */
static int print_ptx(const nvrtc *n, const char *path, const char *text, const char *arch) {
    char option[64];
    nvrtcProgram p = NULL;
    size_t bytes = 0;
    char *ptx = NULL;
    snprintf(option, sizeof option, "--gpu-architecture=compute_%s", arch);
    const char *options[] = {option, "--std=c++17", "--fmad=false"};
    if (n->nvrtcCreateProgram(&p, text, path, 0, NULL, NULL) != NVRTC_SUCCESS) return 1;
    nvrtcResult r = n->nvrtcCompileProgram(p, 3, options);
    if (r == NVRTC_SUCCESS) r = n->nvrtcGetPTXSize(p, &bytes);
    if (r == NVRTC_SUCCESS && (ptx = calloc(1, bytes + 1))) r = n->nvrtcGetPTX(p, ptx);
    if (r != NVRTC_SUCCESS) fprintf(stderr, "%s: compute_%s: %s\n", path, arch, n->nvrtcGetErrorString(r));
    if (ptx) fputs(ptx, stdout);
    free(ptx);
    n->nvrtcDestroyProgram(&p);
    return r != NVRTC_SUCCESS || !bytes;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Compiles in the parts and threads of a start. */
static int start(const char *path, const char *text, const char *arch, const char *folder) {
    static const char *const options[] = {"--fmad=false"};
    const ga_kernel_source s = {.file = path, .text = text, .bytes = strlen(text), .options = options,
                                .option_count = 1, .modules = folder};
    char name[32];
    ga_err e = {0};
    const double from = seconds();
    snprintf(name, sizeof name, "sm_%s", arch);
    if (ga_kernels_compile(&s, name, &e) < 0) fprintf(stderr, "%s\n", e.msg);
    printf("%.2f s\n", seconds() - from);
    return e.code != 0;
}

int main(int argc, char **argv) {
    nvrtc n;
    int bad = 0, major = 0, minor = 0;
    const int ptx = argc == 4 && strcmp(argv[1], "--ptx") == 0, starts = argc == 5 && strcmp(argv[1], "--start") == 0;
    if (argc < 3) {
        fprintf(stderr, "usage: nvrtc_check [--ptx | --start] FILE.cu ARCH...\n");
        return 64;
    }
    int code = open_nvrtc(&n);
    if (code) {
        if (code == 77) printf("NOT RUN: no libnvrtc\n");
        return code;
    }
    const char *path = argv[1 + (ptx || starts)];
    char *text = read_text(path);
    if (!text) {
        perror(path);
        return 1;
    }
    if (ptx || starts) {
        bad = ptx ? print_ptx(&n, path, text, argv[3]) : start(path, text, argv[3], argv[4]);
        free(text);
        return bad;
    }
    if (n.nvrtcVersion(&major, &minor) == NVRTC_SUCCESS) printf("NVRTC %d.%d\n", major, minor);
    for (int i = 2; i < argc; i++) bad |= check(&n, path, text, argv[i]);
    free(text);
    return bad;
}
