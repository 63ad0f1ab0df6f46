// barriers.cpp: the numbered barriers of a block, for some of its threads (barrier.cta.sync), which are neighbours. For
// the checker such a barrier is one of all threads: accesses of the others in front of it pass for earlier ones.
#include <algorithm>

#include "device.h"

namespace device {
namespace {

constexpr int NUMBERS = 16;

struct Barrier {
    unsigned arrived, threads, first, generation;
} barriers[CLUSTER_LIMIT][NUMBERS];

}  // namespace

void forget_barriers() {
    for (auto &list : barriers)
        for (Barrier &b : list) b = {};
}

}  // namespace device

using namespace device;

void dev_numbered_barrier(int number, int threads) {
    const int all = (int)(threads_at_once() / blocks_at_once());
    if (number < 1 || number >= NUMBERS || threads < 32 || threads % 32 || threads > all) {
        report("barrier", "barrier %d of %d threads%s", number, threads, where().c_str());
        abandon_launch();
    }
    Barrier &b = barriers[present_block()][number];
    const unsigned me = dev_current->linear, generation = b.generation;
    if (b.arrived > 0 && b.threads != (unsigned)threads) {
        report("barrier", "barrier %d is one of %u and of %d threads%s", number, b.threads, threads, where().c_str());
        abandon_launch();
    }
    b.first = b.arrived > 0 ? std::min(b.first, me) : me;
    b.threads = (unsigned)threads;
    if (++b.arrived < b.threads) {
        while (b.generation == generation) wait_for_object();
        return;
    }
    b.arrived = 0;
    b.generation++;
    pass_barrier();
    meet(b.first, b.threads);
    wake_objects();
}
