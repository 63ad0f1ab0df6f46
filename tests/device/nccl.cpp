// nccl.cpp: the entry points of libnccl.so.2 for the processes of one machine, over shared memory.
// Sums are in the order of the ranks. Ranks that disagree about a collective are reported at once.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>

#include "device.h"

using namespace device;

#define ENTRY extern "C" __attribute__((visibility("default")))

enum {
    NCCL_SUCCESS = 0,
    NCCL_CUDA = 1,
    NCCL_SYSTEM = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE = 6
};
enum { NCCL_INT64 = 4, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8 };
enum { NCCL_SUM = 0, NCCL_MAX = 2, NCCL_MIN = 3 };
enum class Collective { all_reduce, reduce_scatter, all_gather, reduce, broadcast };

constexpr size_t SLOT = 1 << 20;  // bytes of each rank that are exchanged at a time
constexpr int RANKS = 64;

struct ncclUniqueId {
    char name[128];
};
struct Shared {
    std::atomic<int> arrived, generation, dead;
    uint64_t signature[RANKS];
    alignas(64) char slots[];
};
struct ncclComm : Communicator {
    int ranks, rank, error;
    std::string name;  // of the shared memory
    int splits = 0;
    std::set<std::tuple<int, unsigned, unsigned, int, size_t>> connected;  // kind, type, operation, root, elements
    int made = 0;                                                          // collectives
    Shared *shared;
    size_t mapped;
    char *slot(int r) const {
        return shared->slots + SLOT * (size_t)r;
    }
};

namespace {

const char *const collective_names[] = {"all-reduce", "reduce-scatter", "all-gather", "reduce",
                                        "broadcast"};

bool die(ncclComm &c, const std::string &why) {
    c.shared->dead = 1;
    c.error = NCCL_REMOTE;
    report("nccl", "rank %d: %s", c.rank, why.c_str());
    return false;
}

bool meet(ncclComm &c) {
    Shared &s = *c.shared;
    int generation = s.generation;
    if (++s.arrived == c.ranks) {
        s.arrived = 0;
        s.generation++;
        return true;
    }
    double start = seconds();
    for (int spin = 0; s.generation == generation; spin++) {
        if (s.dead) return die(c, "another rank has failed");
        if (seconds() - start > switches.timeout)
            return die(c, "waited " + std::to_string(switches.timeout) + " s for the other ranks");
        if (spin < 100)
            sched_yield();
        else
            usleep(50);
    }
    return true;
}

size_t element_bytes(unsigned type) {
    return type == NCCL_FLOAT32 ? 4 : 8;
}

template <class T> T combine(T a, T b, unsigned operation) {
    return operation == NCCL_MAX ? std::max(a, b) : operation == NCCL_MIN ? std::min(a, b) : a + b;
}

template <class T>
void reduce(const ncclComm &c, T *out, size_t from, size_t n, unsigned operation) {
    for (size_t i = 0; i < n; i++) {
        T value = ((const T *)c.slot(0))[from + i];
        for (int r = 1; r < c.ranks; r++)
            value = combine(value, ((const T *)c.slot(r))[from + i], operation);
        out[i] = value;
    }
}

void reduce_any(const ncclComm &c, char *out, size_t from, size_t n, unsigned type,
                unsigned operation) {
    if (type == NCCL_FLOAT32)
        reduce(c, (float *)out, from, n, operation);
    else if (type == NCCL_FLOAT64)
        reduce(c, (double *)out, from, n, operation);
    else
        reduce(c, (int64_t *)out, from, n, operation);
}

struct Call {
    Collective kind;
    const char *send;
    char *receive;
    size_t n;  // reduce-scatter, all-gather: elements of one rank's part; otherwise elements
    unsigned type, operation;
    int root;  // of reduce and broadcast
    bool in_graph = false;
};

size_t sent(const Call &k, int ranks) {
    return k.kind == Collective::reduce_scatter ? k.n * (size_t)ranks : k.n;
}
size_t received(const Call &k, int ranks) {
    return k.kind == Collective::all_gather ? k.n * (size_t)ranks : k.n;
}

bool agree(ncclComm &c, const Call &k) {
    uint64_t mine = (uint64_t)k.kind +
                    8 * (k.type + 16 * (k.operation + 8 * (k.root + RANKS * (uint64_t)k.n)));
    c.shared->signature[c.rank] = mine;
    if (!meet(c)) return false;
    for (int r = 0; r < c.ranks; r++)
        if (c.shared->signature[r] != mine)
            return die(c, std::string(collective_names[(int)k.kind]) + " of " +
                              std::to_string(k.n) + " elements meets another collective of rank " +
                              std::to_string(r));
    return meet(c);
}

// A line for each collective of the process of rank 0, in the order in which they are made: how it was sent, kind, elements.
void note_collective(const ncclComm &c, const Call &k) {
    const char *rank = getenv("RANK");
    const bool notes = !switches.collectives.empty() && (rank ? atoi(rank) : c.rank) == 0;
    FILE *f = notes ? fopen(switches.collectives.c_str(), "a") : nullptr;
    if (!f) return;
    fprintf(f, "%s %s %zu\n", k.in_graph ? "graph" : "alone", collective_names[(int)k.kind], k.n);
    fclose(f);
}

void exchange(ncclComm &c, const Call &k) {
    if (hung) return;
    note_collective(c, k);
    if (++c.made == switches.nccl_fails) {
        c.error = NCCL_REMOTE;
        hung = true;
        return;
    }
    size_t bytes = element_bytes(k.type), step = SLOT / bytes, total = sent(k, c.ranks);
    bool gets = k.kind != Collective::reduce || k.root == c.rank;
    bool sends = k.kind != Collective::broadcast || k.root == c.rank;
    if (sends) touch((uintptr_t)k.send, total * bytes, false);
    if (gets) touch((uintptr_t)k.receive, received(k, c.ranks) * bytes, true);
    if (!agree(c, k)) return;
    for (size_t at = 0; at < total; at += step) {
        size_t n = std::min(step, total - at);
        if (sends) memcpy(c.slot(c.rank), k.send + at * bytes, n * bytes);
        if (!meet(c)) return;
        if (k.kind == Collective::broadcast) {
            memcpy(k.receive + at * bytes, c.slot(k.root), n * bytes);
        } else if (k.kind == Collective::all_reduce || k.kind == Collective::reduce) {
            if (gets) reduce_any(c, k.receive + at * bytes, 0, n, k.type, k.operation);
        } else if (k.kind == Collective::all_gather) {
            for (int r = 0; r < c.ranks; r++)
                memcpy(k.receive + ((size_t)r * k.n + at) * bytes, c.slot(r), n * bytes);
        } else {
            size_t begin = std::max(at, k.n * (size_t)c.rank),
                   end = std::min(at + n, k.n * (size_t)(c.rank + 1));
            if (begin < end)
                reduce_any(c, k.receive + (begin - k.n * (size_t)c.rank) * bytes, begin - at,
                           end - begin, k.type, k.operation);
        }
        if (!meet(c)) return;
    }
}

// At its first collective of a kind and size a communicator may choose another algorithm, connect ranks for it and
// allocate: a capture does not allow that.
bool connects(ncclComm *c, const Call &k) {
    const bool first = c->connected.insert({(int)k.kind, k.type, k.operation, k.root, k.n}).second;
    if (first && capturing())
        report("nccl", "rank %d: the first %s of %zu elements connects the ranks, inside a capture", c->rank,
               collective_names[(int)k.kind], k.n);
    return !first || !capturing();
}

int post(ncclComm *c, CUstream_st *stream, Call k) {
    k.in_graph = capturing();
    size_t bytes = element_bytes(k.type);
    bool known = k.type == NCCL_INT64 || k.type == NCCL_FLOAT32 || k.type == NCCL_FLOAT64;
    if (!c || !known || k.operation == 1 || k.operation > NCCL_MIN) return NCCL_INVALID_ARGUMENT;
    if (!contains((uintptr_t)k.send, sent(k, c->ranks) * bytes) ||
        !contains((uintptr_t)k.receive, received(k, c->ranks) * bytes)) {
        report("argument", "%s: a buffer reaches outside of device memory",
               collective_names[(int)k.kind]);
        return NCCL_INVALID_ARGUMENT;
    }
    if (!connects(c, k)) return NCCL_CUDA;
    int code = submit(
        stream, std::string("NCCL ") + collective_names[(int)k.kind], [=] { exchange(*c, k); }, c);
    return code ? NCCL_INVALID_USAGE : NCCL_SUCCESS;
}

}  // namespace

ENTRY int ncclGetVersion(int *out) {
    MAY_FAIL(NCCL_SYSTEM);
    *out = switches.nccl;
    return NCCL_SUCCESS;
}
ENTRY const char *ncclGetErrorString(int code) {
    return code == NCCL_SUCCESS            ? "no error"
           : code == NCCL_CUDA             ? "unhandled cuda error"
           : code == NCCL_INVALID_ARGUMENT ? "invalid argument"
           : code == NCCL_INVALID_USAGE    ? "invalid usage"
           : code == NCCL_REMOTE           ? "remote process failed"
                                           : "system error";
}
ENTRY int ncclGetUniqueId(ncclUniqueId *out) {
    MAY_FAIL(NCCL_SYSTEM);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "/gagen-device-%d-%llx", getpid(),
             (unsigned long long)(seconds() * 1e9));
    return NCCL_SUCCESS;
}
ENTRY int ncclCommInitRank(ncclComm **out, int ranks, ncclUniqueId id, int rank) {
    MAY_FAIL(NCCL_SYSTEM);
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks ||
        !memchr(id.name, 0, sizeof id.name))
        return NCCL_INVALID_ARGUMENT;
    size_t bytes = sizeof(Shared) + SLOT * (size_t)ranks;
    int file = shm_open(id.name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return NCCL_SYSTEM;
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (p == MAP_FAILED) return NCCL_SYSTEM;
    auto *c = new ncclComm;
    c->ranks = ranks;
    c->rank = rank;
    c->error = NCCL_SUCCESS;
    c->name = id.name;
    c->shared = (Shared *)p;
    c->mapped = bytes;
    bool met = meet(*c);
    if (rank == 0 || !met) shm_unlink(id.name);
    *out = c;
    return met ? NCCL_SUCCESS : NCCL_REMOTE;
}
// The ranks of one color become a communicator, in the order of their keys; color -1: this rank is in none.
ENTRY int ncclCommSplit(ncclComm *all, int color, int key, ncclComm **out, void *) {
    MAY_FAIL(NCCL_SYSTEM);
    *out = nullptr;
    if (color < -1 || capturing()) return NCCL_INVALID_USAGE;
    all->shared->signature[all->rank] = (uint64_t)(uint32_t)color << 32 | (uint32_t)key;
    if (!meet(*all)) return NCCL_REMOTE;
    int ranks = 0, rank = 0;
    for (int r = 0; r < all->ranks; r++) {
        const int its_color = (int)(all->shared->signature[r] >> 32), its_key = (int)all->shared->signature[r];
        if (its_color != color) continue;
        ranks++;
        rank += its_key < key || (its_key == key && r < all->rank);
    }
    if (!meet(*all)) return NCCL_REMOTE;
    const std::string name = all->name + "-" + std::to_string(all->splits++) + "-" + std::to_string(color);
    ncclUniqueId id = {};
    snprintf(id.name, sizeof id.name, "%s", name.c_str());
    return color < 0 ? NCCL_SUCCESS : ncclCommInitRank(out, ranks, id, rank);
}
ENTRY int ncclCommDestroy(ncclComm *c) {
    MAY_FAIL(NCCL_SYSTEM);
    if (graph_holds(c)) {
        report("nccl", "ncclCommDestroy while a graph holds the communicator: NCCL hangs here");
        return NCCL_INVALID_USAGE;
    }
    drain();
    munmap(c->shared, c->mapped);
    delete c;
    return NCCL_SUCCESS;
}
ENTRY int ncclCommAbort(ncclComm *c) {
    MAY_FAIL(NCCL_SYSTEM);
    if (graph_holds(c)) {
        report("nccl", "ncclCommAbort while a graph holds the communicator: NCCL hangs here");
        return NCCL_INVALID_USAGE;
    }
    c->shared->dead = 1;
    hung = false;
    return NCCL_SUCCESS;
}
ENTRY int ncclCommGetAsyncError(ncclComm *c, int *out) {
    MAY_FAIL(NCCL_SYSTEM);
    *out = c->error;
    return NCCL_SUCCESS;
}
ENTRY int ncclAllReduce(const void *s, void *r, size_t n, unsigned type, unsigned operation,
                        ncclComm *c, CUstream_st *stream) {
    MAY_FAIL(NCCL_SYSTEM);
    return post(c, stream,
                {Collective::all_reduce, (const char *)s, (char *)r, n, type, operation, 0});
}
ENTRY int ncclReduceScatter(const void *s, void *r, size_t n, unsigned type, unsigned operation,
                            ncclComm *c, CUstream_st *stream) {
    MAY_FAIL(NCCL_SYSTEM);
    return post(c, stream,
                {Collective::reduce_scatter, (const char *)s, (char *)r, n, type, operation, 0});
}
ENTRY int ncclAllGather(const void *s, void *r, size_t n, unsigned type, ncclComm *c,
                        CUstream_st *stream) {
    MAY_FAIL(NCCL_SYSTEM);
    return post(c, stream, {Collective::all_gather, (const char *)s, (char *)r, n, type, NCCL_SUM, 0});
}
ENTRY int ncclReduce(const void *s, void *r, size_t n, unsigned type, unsigned operation, int root,
                     ncclComm *c, CUstream_st *stream) {
    MAY_FAIL(NCCL_SYSTEM);
    if (root < 0 || root >= c->ranks) return NCCL_INVALID_ARGUMENT;
    return post(c, stream, {Collective::reduce, (const char *)s, (char *)r, n, type, operation, root});
}
ENTRY int ncclBroadcast(const void *s, void *r, size_t n, unsigned type, int root, ncclComm *c,
                        CUstream_st *stream) {
    MAY_FAIL(NCCL_SYSTEM);
    if (root < 0 || root >= c->ranks) return NCCL_INVALID_ARGUMENT;
    return post(c, stream, {Collective::broadcast, (const char *)s, (char *)r, n, type, NCCL_SUM, root});
}

// The calls of a group are posted one by one.
ENTRY int ncclGroupStart() {
    MAY_FAIL(NCCL_SYSTEM);
    return NCCL_SUCCESS;
}
ENTRY int ncclGroupEnd() {
    MAY_FAIL(NCCL_SYSTEM);
    return NCCL_SUCCESS;
}
