// state.cpp: switches, seeded random numbers, findings and their lines.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>

#include "device.h"

namespace device {
namespace {

constexpr int FINDINGS_SHOWN = 20;
struct State {
    uint64_t random = 0;
    int findings = 0;
} state;

double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtod(text, nullptr) : otherwise;
}

Switches read_switches() {
    const char *compiler = getenv("GAGEN_DEVICE_CXX"), *traffic = getenv("GAGEN_DEVICE_TRAFFIC"),
               *collectives = getenv("GAGEN_DEVICE_COLLECTIVES"), *fails = getenv("GAGEN_DEVICE_FAILS"),
               *calls = getenv("GAGEN_DEVICE_CALLS");
    Switches s;
    s.check = number("GAGEN_DEVICE_CHECK", 0) != 0;
    s.lazy = number("GAGEN_DEVICE_LAZY", 0) != 0;
    s.clock = number("GAGEN_DEVICE_CLOCK", 0) != 0;
    s.seed = (unsigned)number("GAGEN_DEVICE_SEED", 0);
    s.arch = (int)number("GAGEN_DEVICE_ARCH", 90);
    s.count = (int)number("GAGEN_DEVICE_COUNT", 8);
    s.driver = (int)number("GAGEN_DEVICE_DRIVER", 13000);
    s.nccl = (int)number("GAGEN_DEVICE_NCCL", 22809);
    s.nccl_fails = (int)number("GAGEN_DEVICE_NCCL_FAILS", 0);
    s.memory = (size_t)number("GAGEN_DEVICE_MEMORY", 4.0 * (1 << 30));
    s.timeout = number("GAGEN_DEVICE_TIMEOUT", 20);
    s.compiler = compiler && *compiler ? compiler : "g++";
    s.traffic = traffic ? traffic : "";
    s.collectives = collectives ? collectives : "";
    if (const char *colon = fails ? strchr(fails, ':') : nullptr) {
        s.failing.assign(fails, colon);
        s.fails = atoi(colon + 1);
        s.stays = strchr(colon, '+');
    }
    s.calls = calls ? calls : "";
    state.random = 0x9e3779b97f4a7c15ull * (s.seed + 1ull);
    return s;
}

struct Summary {
    ~Summary() {
        if (state.findings > FINDINGS_SHOWN)
            fprintf(stderr, "device: %d findings, the first %d are shown\n", state.findings,
                    FINDINGS_SHOWN);
    }
} summary;

}  // namespace

Switches switches = read_switches();

bool fails(const char *name) {
    static std::atomic<int> count;
    const int n = switches.failing == name ? ++count : 0;
    if (FILE *f = switches.calls.empty() ? nullptr : fopen(switches.calls.c_str(), "a")) {
        fprintf(f, "%s\n", name);
        fclose(f);
    }
    return (n > 0 && n == switches.fails) || (switches.stays && count >= switches.fails);
}

unsigned random_below(unsigned n) {
    if (!switches.seed || n < 2) return 0;
    uint64_t &r = state.random;
    r ^= r << 13;
    r ^= r >> 7;
    r ^= r << 17;
    return (unsigned)((r >> 32) % n);
}

void report(const char *kind, const char *format, ...) {
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (state.findings++ < FINDINGS_SHOWN) fprintf(stderr, "device: %s: %s\n", kind, text);
}

std::string source_line(const void *counter) {
    static std::map<const void *, std::string> lines;
    Dl_info info;
    auto known = lines.find(counter);
    if (known != lines.end()) return known->second;
    if (!dladdr(counter, &info)) return "an unknown place";
    char command[600], line[300] = "";
    snprintf(command, sizeof command, "addr2line -s -e '%s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)((const char *)counter - (const char *)info.dli_fbase - 1));
    if (FILE *p = popen(command, "r")) {
        if (!fgets(line, sizeof line, p)) line[0] = 0;
        pclose(p);
    }
    line[strcspn(line, " \n")] = 0;
    return lines[counter] = line;
}

bool failed() {
    return state.findings > 0;
}

double seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

}  // namespace device
