/* device_kernels.c: from the text of the kernels to loaded functions, by the cache, or by NVRTC and then
 * stored in the cache. */
#include "device/device_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPTIONS_MAX = 32, TEXT_LIMIT = 64 << 20, PARTS_MAX = GA_KERNEL_PARTS_MAX };

/* One build of a module: its text, options and result. */
typedef struct build {
    char *text; /* NUL-terminated copy */
    size_t bytes;
    bool edited; /* from GAGEN_KERNELS */
    char architecture[48];
    bool ptx; /* the device is newer than NVRTC: the driver compiles PTX for it */
    const char *options[OPTIONS_MAX];
    int option_count;
    ga_cache_key key;
    void *image;
    size_t image_bytes;
    bool loaded;
} build;

/* NVRTC of the driver's CUDA or of the one before: a driver loads no module of a newer CUDA. */
static int open_nvrtc(ga_device *d, ga_err *e) {
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    static const char *const symbols[] = {GA_NVRTC_FUNCTIONS(GA_SYMBOL_NAME)};
    const int driver = d->facts.driver_version;
    const bool is_12 = driver < 13000;
    int major = 0, minor = 0;
    if (driver < 12000)
        return ga_fail(e, GA_ENVIRONMENT, "device %d: its driver is for CUDA %d.%d; install one for CUDA 12 or newer",
                       d->facts.ordinal, driver / 1000, driver % 1000 / 10);
    const char *advice = is_12 ? "the driver is for CUDA 12: install NVRTC 12, or put its folder in LD_LIBRARY_PATH"
                               : "install NVRTC 12 or 13 of the CUDA toolkit, or put its folder in LD_LIBRARY_PATH";
    GA_TRY(ga_library_open(&d->nvrtc_library, sonames + is_12, symbols, (int)(sizeof symbols / sizeof *symbols),
                           (void (**)(void)) & d->nvrtc, advice, e));
    if (d->nvrtc.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS)
        return ga_fail(e, GA_ENVIRONMENT,
                       "libnvrtc: its version cannot be read; reinstall the toolkit");
    d->facts.nvrtc_version = 1000 * major + 10 * minor;
    return 0;
}

static int copy_text(build *b, const ga_kernel_source *s, ga_err *e) {
    b->text = malloc(s->bytes + 1);
    if (!b->text)
        return ga_fail(e, GA_ENVIRONMENT, "out of host memory for the text of the kernels");
    memcpy(b->text, s->text, s->bytes);
    b->text[s->bytes] = 0;
    b->bytes = s->bytes;
    return 0;
}

static int read_text(build *b, const char *path, ga_err *e) {
    struct stat s;
    FILE *f = fopen(path, "rb");
    if (!f)
        return ga_fail(e, GA_INPUT, "%s: cannot be read, but GAGEN_KERNELS names its folder", path);
    if (fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode) && s.st_size <= TEXT_LIMIT) {
        b->bytes = (size_t)s.st_size;
        b->text = malloc(b->bytes + 1);
    }
    bool good = b->text && fread(b->text, 1, b->bytes, f) == b->bytes;
    fclose(f);
    if (!good)
        return ga_fail(e, GA_INPUT, "%s: cannot be read as a file of at most %d bytes", path,
                       TEXT_LIMIT);
    b->text[b->bytes] = 0;
    return 0;
}

static int get_text(build *b, const ga_kernel_source *s, ga_err *e) {
    const char *folder = getenv("GAGEN_KERNELS");
    char path[1024];
    if (!folder || !*folder) return copy_text(b, s, e);
    b->edited = true;
    if (snprintf(path, sizeof path, "%s/%s", folder, s->file) >= (int)sizeof path)
        return ga_fail(e, GA_INPUT, "GAGEN_KERNELS: the path is longer than %zu bytes",
                       sizeof path);
    ga_say("kernels: from %s", path);
    return read_text(b, path, e);
}

/* Whether the text has instructions of a single architecture, or asks for it. */
static bool is_specific(const build *b) {
    static const char *const words[] = {"__CUDA_ARCH_FEAT_SM", "wgmma.", "setmaxnreg.", "tcgen05."};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(b->text, words[i])) return true;
    return false;
}

/* The device's own architecture, or the greatest below it that this NVRTC knows, as PTX. Only from sm_90 on has an
 * architecture instructions of its own; PTX with them is for that one device. */
static int choose_architecture(const ga_device *d, build *b, ga_err *e) {
    int supported[256], count = 0, best = 0, least = 0;
    if (d->nvrtc.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 1 || count > 256 ||
        d->nvrtc.nvrtcGetSupportedArchs(supported) != NVRTC_SUCCESS)
        return ga_fail(e, GA_ENVIRONMENT,
                       "libnvrtc: its architectures cannot be read; reinstall it");
    least = supported[0];
    for (int i = 0; i < count; i++) {
        if (supported[i] <= d->facts.arch && supported[i] > best) best = supported[i];
        if (supported[i] < least) least = supported[i];
    }
    if (!best)
        return ga_fail(
            e, GA_ENVIRONMENT,
            "device %d (%s) is sm_%d, and NVRTC %d.%d compiles for sm_%d and newer; install "
            "an older toolkit",
            d->facts.ordinal, d->facts.name, d->facts.arch, d->facts.nvrtc_version / 1000,
            d->facts.nvrtc_version % 1000 / 10, least);
    b->ptx = best != d->facts.arch;
    snprintf(b->architecture, sizeof b->architecture, "--gpu-architecture=%s_%d%s",
             b->ptx ? "compute" : "sm", best, !b->ptx && best >= 90 && is_specific(b) ? "a" : "");
    return 0;
}

static int set_options(build *b, const ga_kernel_source *s, ga_err *e) {
    if (s->option_count > OPTIONS_MAX - 2)
        return ga_fail(e, GA_BUG, "%d options for NVRTC, at most %d are possible", s->option_count,
                       OPTIONS_MAX - 2);
    b->options[b->option_count++] = b->architecture;
    b->options[b->option_count++] = "--std=c++17";
    for (int i = 0; i < s->option_count; i++) b->options[b->option_count++] = s->options[i];
    return 0;
}

/* The key covers everything that the module depends on: the text, the options with the architecture, the versions of
 * NVRTC and the driver. d NULL: a module for all devices of an architecture, whatever NVRTC made it. */
static void set_key(const ga_device *d, build *b) {
    ga_cache_part parts[OPTIONS_MAX + 4];
    int n = 0;
    parts[n++] = (ga_cache_part){b->text, b->bytes};
    if (d) {
        parts[n++] = (ga_cache_part){&d->facts.nvrtc_version, sizeof d->facts.nvrtc_version};
        parts[n++] = (ga_cache_part){&d->facts.driver_version, sizeof d->facts.driver_version};
    }
    for (int i = 0; i < b->option_count; i++)
        parts[n++] = (ga_cache_part){b->options[i], strlen(b->options[i])};
    b->key = ga_cache_key_of(parts, n);
}

static int fail_compilation(ga_device *d, const build *b, const char *file, nvrtcProgram p,
                            nvrtcResult r, ga_err *e) {
    size_t bytes = 0;
    char *log = NULL;
    if (d->nvrtc.nvrtcGetProgramLogSize(p, &bytes) == NVRTC_SUCCESS && bytes > 1)
        log = calloc(1, bytes + 1);
    if (log && d->nvrtc.nvrtcGetProgramLog(p, log) != NVRTC_SUCCESS) *log = 0;
    int code = ga_fail(e,
                       r != NVRTC_ERROR_COMPILATION ? GA_ENVIRONMENT
                       : b->edited                  ? GA_INPUT
                                                    : GA_BUG,
                       "%s: NVRTC %d.%d, %s: %s: %s", file, d->facts.nvrtc_version / 1000,
                       d->facts.nvrtc_version % 1000 / 10, b->architecture,
                       d->nvrtc.nvrtcGetErrorString(r), log ? log : "no log");
    free(log);
    return code;
}

static int take_image(ga_device *d, build *b, nvrtcProgram p, ga_err *e) {
    nvrtcResult r = b->ptx ? d->nvrtc.nvrtcGetPTXSize(p, &b->image_bytes)
                           : d->nvrtc.nvrtcGetCUBINSize(p, &b->image_bytes);
    if (r == NVRTC_SUCCESS && b->image_bytes > 0) b->image = malloc(b->image_bytes);
    if (!b->image)
        return ga_fail(e, GA_ENVIRONMENT, "NVRTC returned no module, or the host has no memory for it");
    r = b->ptx ? d->nvrtc.nvrtcGetPTX(p, b->image) : d->nvrtc.nvrtcGetCUBIN(p, b->image);
    if (r == NVRTC_SUCCESS) return 0;
    return ga_fail(e, GA_ENVIRONMENT, "NVRTC: %s", d->nvrtc.nvrtcGetErrorString(r));
}

static int compile(ga_device *d, build *b, const char *file, ga_err *e) {
    nvrtcProgram p = NULL;
    nvrtcResult r = d->nvrtc.nvrtcCreateProgram(&p, b->text, file, 0, NULL, NULL);
    if (r != NVRTC_SUCCESS)
        return ga_fail(e, GA_ENVIRONMENT, "NVRTC: %s", d->nvrtc.nvrtcGetErrorString(r));
    r = d->nvrtc.nvrtcCompileProgram(p, b->option_count, b->options);
    int code = r == NVRTC_SUCCESS ? take_image(d, b, p, e) : fail_compilation(d, b, file, p, r, e);
    d->nvrtc.nvrtcDestroyProgram(&p);
    return code;
}

static int load_image(ga_device *d, const build *b, ga_err *e) {
    CUmodule module;
    GA_TRY(ga_handles_reserve(&d->modules, e));
    GA_TRY(ga_cuda_check(d, d->cuda.cuModuleLoadData(&module, b->image), "loading the kernels", e));
    ga_handles_keep(&d->modules, module);
    return 0;
}

static void drop_image(build *b) {
    free(b->image);
    b->image = NULL;
}

/* === parts of a text, compiled side by side ================================================================== */

/* Parts of a text of kernels: those without an image are compiled, by threads that each take the next one. */
typedef struct part_list {
    ga_device *device;
    const char *file;
    build list[PARTS_MAX];
    ga_err errors[PARTS_MAX];
    int count, missing;
    atomic_int next, code;
} part_list;

static void *compile_parts(void *arg) {
    part_list *p = arg;
    for (int i; (i = atomic_fetch_add(&p->next, 1)) < p->count;) {
        if (p->list[i].image) continue;
        const int code = compile(p->device, &p->list[i], p->file, &p->errors[i]);
        if (code < 0) atomic_store(&p->code, code);
    }
    return NULL;
}

static int compile_all(part_list *p, ga_err *e) {
    pthread_t threads[PARTS_MAX];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    while (started < p->missing - 1 && started < cores - 1 &&
           pthread_create(&threads[started], NULL, compile_parts, p) == 0)
        started++;
    compile_parts(p);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < p->count && e; i++)
        if (p->errors[i].code) {
            *e = p->errors[i];
            break;
        }
    return atomic_load(&p->code);
}

/* Cuts the text of a build, whose architecture is set; an edited text is one part. keyed: whose versions of NVRTC and
 * driver belong to the keys, or NULL. close_parts follows in any case. */
static int open_parts(part_list *p, const build *whole, const ga_kernel_source *s, const ga_device *keyed, ga_err *e) {
    p->file = s->file;
    p->missing = p->count = whole->edited ? 1 : ga_kernel_parts(whole->text);
    for (int i = 0; i < p->count; i++) {
        build *b = &p->list[i];
        *b = (build){.bytes = whole->bytes, .edited = whole->edited, .ptx = whole->ptx};
        memcpy(b->architecture, whole->architecture, sizeof b->architecture);
        b->text = ga_kernel_part(whole->text, whole->bytes, i, p->count);
        if (!b->text) return ga_fail(e, GA_ENVIRONMENT, "out of host memory for the text of the kernels");
        GA_TRY(set_options(b, s, e));
        set_key(keyed, b);
    }
    return 0;
}

static void close_parts(part_list *p) {
    for (int i = 0; i < p->count; i++) {
        free(p->list[i].text);
        drop_image(&p->list[i]);
    }
}

/* Loads the parts that the cache has; one that the driver refuses is compiled anew. */
static void load_cached(ga_device *d, part_list *p, int folder) {
    for (int i = 0; i < p->count && folder >= 0; i++) {
        build *b = &p->list[i];
        b->image = ga_cache_read(folder, &b->key, &b->image_bytes);
        if (b->image && load_image(d, b, NULL) < 0) drop_image(b);
        b->loaded = b->image != NULL;
        p->missing -= b->loaded;
    }
}

static int load_parts(ga_device *d, part_list *p, ga_err *e) {
    const int folder = ga_cache_open();
    load_cached(d, p, folder);
    int code = compile_all(p, e);
    for (int i = 0; i < p->count && code == 0; i++) {
        build *b = &p->list[i];
        if (b->loaded) continue;
        code = load_image(d, b, e);
        if (code == 0 && folder >= 0) ga_cache_write(folder, &b->key, b->image, b->image_bytes);
    }
    if (folder >= 0) close(folder);
    return code;
}

static int load_modules(ga_device *d, const build *whole, const ga_kernel_source *s, ga_err *e) {
    part_list p = {.device = d};
    int code = open_parts(&p, whole, s, d, e);
    if (code == 0) code = load_parts(d, &p, e);
    close_parts(&p);
    return code;
}

/* === modules compiled before a start ======================================================================== */

static void name_architecture(build *b, int arch) {
    snprintf(b->architecture, sizeof b->architecture, "--gpu-architecture=sm_%d%s", arch,
             arch >= 90 && is_specific(b) ? "a" : "");
}

static int open_modules(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Reads the modules of all parts; false: not all are there. */
static bool read_modules(part_list *p, int folder) {
    for (int i = 0; i < p->count; i++) {
        build *b = &p->list[i];
        b->image = ga_cache_read(folder, &b->key, &b->image_bytes);
        if (!b->image) return false;
    }
    return true;
}

/* Loads the device's modules from the folder of the source, if all are there and the driver takes them. */
static int load_made(ga_device *d, build *whole, const ga_kernel_source *s, ga_err *e) {
    const int folder = s->modules ? open_modules(s->modules) : -1;
    part_list p = {.device = d};
    if (folder < 0) return 0;
    name_architecture(whole, d->facts.arch);
    const int code = open_parts(&p, whole, s, NULL, e);
    bool taken = code == 0 && read_modules(&p, folder);
    close(folder);
    for (int i = 0; i < p.count && taken; i++) taken = load_image(d, &p.list[i], NULL) == 0;
    while (!taken && d->modules.count > 0) d->cuda.cuModuleUnload(d->modules.at[--d->modules.count]);
    close_parts(&p);
    return code;
}

/* Puts a module into the folder, which is made if it is missing, and reads it back. */
static int keep_module(const build *b, const char *path, ga_err *e) {
    size_t bytes = 0;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be made: %s", path, strerror(errno));
    const int folder = open_modules(path);
    if (folder < 0) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be opened: %s", path, strerror(errno));
    ga_cache_write(folder, &b->key, b->image, b->image_bytes);
    void *read = ga_cache_read(folder, &b->key, &bytes);
    close(folder);
    if (!read) return ga_fail(e, GA_ENVIRONMENT, "%s: the module cannot be written there", path);
    free(read);
    ga_say("kernels for %s: %s/%s.cubin", strchr(b->architecture, '=') + 1, path, b->key.text);
    return 0;
}

static int make_modules(ga_device *d, build *whole, part_list *p, const ga_kernel_source *s, int arch, ga_err *e) {
    GA_TRY(open_nvrtc(d, e));
    GA_TRY(get_text(whole, s, e));
    name_architecture(whole, arch);
    GA_TRY(open_parts(p, whole, s, NULL, e));
    GA_TRY(compile_all(p, e));
    for (int i = 0; i < p->count; i++) GA_TRY(keep_module(&p->list[i], s->modules, e));
    return 0;
}

int ga_kernels_compile(const ga_kernel_source *s, const char *architecture, ga_err *e) {
    ga_device any = {.facts = {.driver_version = 13000}}; /* no device: any NVRTC will do */
    part_list p = {.device = &any};
    build whole = {0};
    char *end = NULL;
    const long arch = strncmp(architecture, "sm_", 3) == 0 ? strtol(architecture + 3, &end, 10) : 0;
    if (arch < 50 || arch > 999 || (*end && strcmp(end, "a") != 0))
        return ga_fail(e, GA_INPUT, "--offline: \"%s\", expected an architecture such as sm_80 or sm_90a",
                       architecture);
    const int code = make_modules(&any, &whole, &p, s, (int)arch, e);
    close_parts(&p);
    free(whole.text);
    return code;
}

static int prepare(ga_device *d, build *whole, const ga_kernel_source *s, ga_err *e) {
    GA_TRY(get_text(whole, s, e));
    GA_TRY(load_made(d, whole, s, e));
    if (d->modules.count > 0) return 0;
    GA_TRY(open_nvrtc(d, e));
    GA_TRY(choose_architecture(d, whole, e));
    return load_modules(d, whole, s, e);
}

int ga_device_load_kernels(ga_device *d, const ga_kernel_source *s, ga_kernel *kernels, ga_err *e) {
    build b = {0};
    if (d->modules.count > 0) return ga_fail(e, GA_BUG, "kernels are loaded once per device");
    int code = prepare(d, &b, s, e);
    free(b.text);
    GA_TRY(code);
    for (int i = 0; i < s->name_count; i++) {
        GA_TRY(ga_device_kernel(d, s->names[i], &kernels[i], e));
        if (!kernels[i])
            return ga_fail(e, b.edited ? GA_INPUT : GA_BUG, "%s: has no kernel %s", s->file, s->names[i]);
    }
    return 0;
}

int ga_device_kernel(ga_device *d, const char *name, ga_kernel *out, ga_err *e) {
    *out = NULL;
    for (int i = 0; i < d->modules.count && !*out; i++) {
        ga_kernel k;
        const CUresult r = d->cuda.cuModuleGetFunction(&k, d->modules.at[i], name);
        if (r == CUDA_ERROR_NOT_FOUND) continue;
        GA_TRY(ga_cuda_check(d, r, "finding a kernel", e));
        *out = k;
    }
    return 0;
}

int ga_device_allow_shared(ga_device *d, ga_kernel k, size_t bytes, ga_err *e) {
    if (bytes > d->facts.shared_bytes_max)
        return ga_fail(e, GA_ENVIRONMENT,
                       "device %d (%s): a kernel needs %zu bytes of shared memory per "
                       "block, the device has %zu",
                       d->facts.ordinal, d->facts.name, bytes, d->facts.shared_bytes_max);
    return ga_cuda_check(
        d,
        d->cuda.cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
        "allowing shared memory", e);
}
