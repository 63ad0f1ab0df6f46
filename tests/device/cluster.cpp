// cluster.cpp: what a thread does in the shared memory of other blocks of its cluster: it arrives at their mbarriers and
// lets copies of boxes land there. Both are done as if the thread were one of that block. The block must be there, and
// must know of arrivals before its last thread ends, as of the copies to it (hopper.cpp).
#include <algorithm>

#include "device.h"

namespace device {
namespace {

constexpr unsigned SPAN = 1 << 24;  // of the addresses of a block; those of the own one may be below

std::vector<Moment> arrivals[CLUSTER_LIMIT];  // from other blocks: those that a block may not know of

// In another block, for the time of its life.
struct Visit {
    const unsigned own = present_block();
    Visit(unsigned block, const char *what) {
        if (!has_block(block)) {
            report("cluster", "%s: block %u of the cluster has ended or is not there%s", what, block, where().c_str());
            abandon_launch();
        }
        enter_block(block);
    }
    ~Visit() {
        enter_block(own);
    }
};

}  // namespace

void forget_arrivals() {
    for (auto &list : arrivals) list.clear();
}

void finish_arrivals(bool last) {
    auto &list = arrivals[present_block()];
    list.erase(std::remove_if(list.begin(), list.end(), is_before), list.end());
    if (last && !list.empty())
        report("cluster", "a block ends, no wait says that thread %u of the cluster has arrived at its mbarrier%s",
               list[0].by, where().c_str());
}

}  // namespace device

using namespace device;

unsigned dev_cluster_address(unsigned at, unsigned block) {
    return (block + 1) * SPAN + at;
}

void dev_cluster_object_arrive(unsigned at) {
    const unsigned block = at < SPAN ? present_block() : at / SPAN - 1;
    if (block != present_block()) arrivals[block % CLUSTER_LIMIT].push_back(now());
    Visit visit(block, "an arrival");
    dev_object_arrive(at % SPAN, 0);
}

void dev_cluster_box(unsigned to, const void *map, int column, int row, unsigned object, unsigned blocks) {
    unsigned bytes = 0;
    for (unsigned block = 0; blocks >> block; block++) {
        if (!(blocks >> block & 1)) continue;
        Visit visit(block, "a copy of a box");
        bytes = begin_box(to, map, column, row, 0, object, __builtin_return_address(0));
    }
    note_box(bytes);
}
