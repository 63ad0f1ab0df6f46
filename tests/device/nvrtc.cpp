// nvrtc.cpp: the entry points of libnvrtc.so. A text is compiled by g++, after shim.h and before one
// registration per kernel; the shared library takes the place of a cubin.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "device.h"
#include "image.h"
#include "text.h"

using namespace device;

#define ENTRY extern "C" __attribute__((visibility("default")))

enum {
    NVRTC_SUCCESS = 0,
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_INVALID_PROGRAM = 4,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_INTERNAL = 11
};

struct _nvrtcProgram {
    std::string text, name, log, image;
};

namespace {

struct Kernel {
    std::string name, bound, cluster;
};

std::string read_file(const std::string &path) {
    std::string text;
    if (FILE *f = fopen(path.c_str(), "rb")) {
        char buffer[65536];
        for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) text.append(buffer, n);
        fclose(f);
    }
    return text;
}

bool write_file(const std::string &path, const std::string &text) {
    FILE *f = fopen(path.c_str(), "wb");
    bool good = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    return f && fclose(f) == 0 && good;
}

std::string own_path() {
    Dl_info own;
    dladdr((void *)own_path, &own);
    return own.dli_fname;
}

std::string own_folder() {
    return own_path().substr(0, own_path().rfind('/'));
}

int run_command(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> arguments;
    for (const std::string &w : words) arguments.push_back((char *)w.c_str());
    arguments.push_back(nullptr);
    pid_t child = fork();
    if (child == 0) {
        int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(file, 1);
        dup2(file, 2);
        unsetenv("LD_PRELOAD");
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

// Reads the kernel announced by `word`, which ends at `at`.
Kernel read_kernel(const std::string &text, size_t at, std::string word) {
    Kernel k = {"", "0", "0"};
    while (at < text.size()) {
        size_t open = text.find_first_not_of(" \t\n", at);
        bool call = open != std::string::npos && text[open] == '(';
        const bool bounds = word == "__launch_bounds__" || word == "GA_KERNEL", cluster = word == "__cluster_dims__";
        if (call && !bounds && !cluster && word != "__attribute__") {
            k.name = word;
            return k;
        }
        if (call) {
            size_t end = after_parentheses(text, open);
            const std::string inside = text.substr(open + 1, end - open - 2);
            if (bounds) k.bound = inside.substr(0, inside.find(','));
            if (cluster) k.cluster = inside;
            at = end;
        }
        word = word_at(text, at);
    }
    return k;
}

std::vector<Kernel> find_kernels(const std::string &text) {
    std::vector<Kernel> found;
    for (size_t at = 0; at < text.size();) {
        std::string word = word_at(text, at);
        if (word != "__global__" && word != "GA_KERNEL") continue;
        Kernel k = read_kernel(text, at, word);
        bool known = k.name.empty();
        for (const Kernel &other : found) known = known || other.name == k.name;
        if (!known) found.push_back(k);
    }
    return found;
}

// Rewrites "extern __shared__ float tile[];" into a call that returns the dynamic shared memory.
std::string replace_dynamic_shared(const std::string &text) {
    static const std::regex declaration(
        "\\bextern\\s+__shared__\\s+(?:__align__\\s*\\(\\s*\\d+\\s*\\)\\s*)?"
        "(\\w+(?:\\s+\\w+)*?)\\s+(\\w+)\\s*\\[\\s*\\]\\s*;");
    return std::regex_replace(text, declaration, "$1 *$2 = ($1 *)dev_dynamic_shared();");
}

std::string full_text(const _nvrtcProgram &p, const std::vector<std::string> &definitions) {
    static const std::string GUARD = "__CUDA_ARCH_FEAT_SM90_ALL"; // kernels in it are there for sm_90a alone
    const bool whole = std::find(definitions.begin(), definitions.end(), "-D" + GUARD) != definitions.end();
    std::string text =
        "#line 1 \"" + p.name + "\"\n" + calls_of_instructions(replace_dynamic_shared(p.text)) + "\n";
    for (const Kernel &k : find_kernels(bare(whole ? p.text : without_guarded(p.text, GUARD))))
        text += "DEV_KERNEL(" + k.name + ", (" + k.bound + "), (" + k.cluster + "))\n";
    return text +
           "extern \"C\" { extern char __start_dev_shared[] __attribute__((weak, "
           "visibility(\"hidden\"))),\n"
           "__stop_dev_shared[] __attribute__((weak, visibility(\"hidden\"))); }\n"
           "__attribute__((constructor)) static void dev_announce_shared()\n"
           "{ dev_register_shared(__start_dev_shared, __stop_dev_shared); }\n";
}

// The CUDA of the library, by the name that it was opened by.
int cuda_version() {
    const std::string path = own_path();
    return path.substr(path.rfind('.')) == ".12" ? 12 : 13;
}

// The definitions that come with an architecture; false: there is none such. Code for one architecture alone, with an
// a behind its number, is compiled for it, not kept as PTX for later ones.
bool add_architecture(const std::string &name, std::vector<std::string> &words) {
    const size_t from = name.rfind("sm_", 0) == 0 ? 3 : name.rfind("compute_", 0) == 0 ? 8 : std::string::npos;
    if (from == std::string::npos) return false;
    char *end;
    const long number = strtol(name.c_str() + from, &end, 10);
    words.push_back("-D__CUDA_ARCH__=" + std::to_string(10 * number));
    if (*end == 0) return true;
    words.push_back("-D__CUDA_ARCH_FEAT_SM" + std::to_string(number) + "_ALL");
    return !strcmp(end, "a") && number >= 90 && from == 3;
}

// Accepts NVRTC's options, refuses those known to break results, and requires the architecture.
int check_options(_nvrtcProgram &p, int count, const char *const *options,
                  std::vector<std::string> &words) {
    bool architecture = false;
    for (int i = 0; i < count; i++) {
        std::string o = options[i];
        if (o.rfind("--gpu-architecture=", 0) == 0)
            architecture = add_architecture(o.substr(o.find('=') + 1), words);
        else if (o.rfind("-D", 0) == 0)
            words.push_back(o);
        else if (o.rfind("--std=", 0) && o.rfind("--fmad=", 0) && o != "-lineinfo" &&
                 o != "--device-as-default-execution-space") {
            p.log = "unrecognized option " + o + "\n";
            return NVRTC_INVALID_OPTION;
        }
    }
    if (!architecture) p.log = "no --gpu-architecture, or one that is not known\n";
    return architecture ? NVRTC_SUCCESS : NVRTC_INVALID_OPTION;
}

std::vector<std::string> compile_words() {
    std::vector<std::string> words = {switches.compiler,
                                      "-c",
                                      "-std=c++17",
                                      "-w",
                                      "-Og",  // -O1 takes longer to compile than it saves in the run
                                      "-g1",
                                      "-fPIC",
                                      "-fno-exceptions",
                                      "-ffp-contract=off",
                                      "-include",
                                      own_folder() + "/shim.h"};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma"))
        words.push_back("-mfma");  // else fma() is a slow call
#endif
    if (switches.check)  // keeps loops, as the checker does not see calls of memset
        for (const char *w : {"-fsanitize=thread", "-fsanitize=alignment,bounds",
#if __GNUC__ >= 11
                              "--param=tsan-instrument-func-entry-exit=0",
#endif
                              "-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns"})
            words.push_back(w);
    return words;
}

int compile(_nvrtcProgram &p, const std::vector<std::string> &definitions) {
    char folder[] = "/tmp/gagen-device-XXXXXX";
    if (!mkdtemp(folder)) return NVRTC_INTERNAL;
    std::string base = std::string(folder) + "/", source = base + "kernels.cpp", log = base + "log";
    std::vector<std::string> words = compile_words();
    words.insert(words.end(), definitions.begin(), definitions.end());
    words.insert(words.end(), {source, "-o", base + "kernels.o"});
    bool good =
        write_file(source, full_text(p, definitions)) && run_command(words, log) == 0 &&
        run_command({switches.compiler, "-shared", base + "kernels.o", "-o", base + "kernels.so"},
                    log) == 0;
    p.log = read_file(log);
    std::string library = good ? read_file(base + "kernels.so") : "";
    for (const char *name : {"kernels.cpp", "kernels.o", "kernels.so", "log"})
        unlink((base + name).c_str());
    rmdir(folder);
    if (!good) return NVRTC_COMPILATION;
    Image header = {};
    memcpy(header.magic, IMAGE_MAGIC, sizeof header.magic);
    header.stamp = image_stamp();
    header.bytes = library.size();
    header.cuda = cuda_version();
    p.image.assign((const char *)&header, sizeof header);
    p.image += library;
    return NVRTC_SUCCESS;
}

int copy_out(const std::string &from, char *to) {
    memcpy(to, from.data(), from.size());
    return NVRTC_SUCCESS;
}

}  // namespace

static uint64_t new_stamp() {
    uint64_t stamp = 0xcbf29ce484222325ull + switches.check;
    for (const std::string &path :
         {own_path(), own_folder() + "/shim.h", own_folder() + "/ptx.h", own_folder() + "/kernel_abi.h"}) {
        std::string text = read_file(path) + std::string(8, 0);
        for (size_t at = 0; at + 8 <= text.size(); at += 8) {  // megabytes, at the start of every program
            uint64_t part;
            memcpy(&part, &text[at], 8);
            stamp = (stamp ^ part) * 0x100000001b3ull;
            stamp ^= stamp >> 29;
        }
    }
    return stamp;
}

uint64_t device::image_stamp() {
    static const uint64_t stamp = new_stamp();  // once, also if threads compile side by side
    return stamp;
}

ENTRY int nvrtcVersion(int *major, int *minor) {
    MAY_FAIL(NVRTC_INTERNAL);
    *major = cuda_version();
    *minor = 0;
    return NVRTC_SUCCESS;
}
ENTRY const char *nvrtcGetErrorString(int code) {
    return code == NVRTC_SUCCESS          ? "NVRTC_SUCCESS"
           : code == NVRTC_COMPILATION    ? "NVRTC_ERROR_COMPILATION"
           : code == NVRTC_INVALID_OPTION ? "NVRTC_ERROR_INVALID_OPTION"
                                          : "NVRTC_ERROR_INTERNAL_ERROR";
}
ENTRY int nvrtcGetNumSupportedArchs(int *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    *out = 4;
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcGetSupportedArchs(int *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    out[0] = 75;
    out[1] = 80;
    out[2] = 90;
    out[3] = 100;
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcCreateProgram(_nvrtcProgram **out, const char *text, const char *name, int headers,
                             const char *const *, const char *const *) {
    MAY_FAIL(NVRTC_INTERNAL);
    if (!text || headers) return NVRTC_INVALID_PROGRAM;
    *out = new _nvrtcProgram{text, name ? name : "default_program", "", ""};
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcCompileProgram(_nvrtcProgram *p, int count, const char *const *options) {
    MAY_FAIL(NVRTC_INTERNAL);
    std::vector<std::string> definitions;
    int code = check_options(*p, count, options, definitions);
    return code ? code : compile(*p, definitions);
}
// PTX and cubin are the same here.
ENTRY int nvrtcGetCUBINSize(_nvrtcProgram *p, size_t *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    *out = p->image.size();
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcGetCUBIN(_nvrtcProgram *p, char *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    return copy_out(p->image, out);
}
ENTRY int nvrtcGetPTXSize(_nvrtcProgram *p, size_t *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    return nvrtcGetCUBINSize(p, out);
}
ENTRY int nvrtcGetPTX(_nvrtcProgram *p, char *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    return copy_out(p->image, out);
}
ENTRY int nvrtcGetProgramLogSize(_nvrtcProgram *p, size_t *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    *out = p->log.size() + 1;
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcGetProgramLog(_nvrtcProgram *p, char *out) {
    MAY_FAIL(NVRTC_INTERNAL);
    copy_out(p->log, out);
    out[p->log.size()] = 0;
    return NVRTC_SUCCESS;
}
ENTRY int nvrtcDestroyProgram(_nvrtcProgram **p) {
    MAY_FAIL(NVRTC_INTERNAL);
    delete *p;
    *p = nullptr;
    return NVRTC_SUCCESS;
}
