// hopper.cpp: what sm_90a adds: barriers in shared memory (mbarrier), boxes of matrices that are copied beside a kernel
// (TMA), products of warpgroups that read shared memory by descriptors (wgmma).
//
// A box lands as late as it may, or at once, by the seed. Products are computed when all 128 threads have asked for
// them, but their registers hold NaNs until each thread waits for its group. The order of these accesses is
// known by a clock per thread: `seen` of a thread has, for each other one, how many of its moments came before. Clocks
// are joined at mbarriers (an arrival gives, a wait takes), at __syncthreads and at __syncwarp.
#include <cmath>
#include <cstring>
#include <map>

#include "device.h"

namespace device {
namespace {

constexpr unsigned GROUP = 128, TALL = 64, WIDEST = 256, DEEP = 16, OBJECTS = 32;
constexpr unsigned REGISTERS = 65536;  // of a multiprocessor
constexpr uint32_t UNDER_WAY = 0xffbfffff;  // a signalling NaN in a register: arithmetic makes another one of it
using Seen = std::vector<uint32_t>;

struct Object {  // an mbarrier
    unsigned number;
    int arrivals, pending;
    long bytes;
    uint32_t phases;  // that have opened
    Moment made;
    bool fenced;
    Seen given, opened;  // clocks of those that arrived in this phase, and in all that have opened
};

struct Range {
    unsigned begin, end;  // places in dynamic shared memory
    bool meets(const Range &r) const { return begin < r.end && r.begin < end; }
};

struct Box {
    Range to;
    Map map;
    unsigned object;
    int column, row, sheet;
    bool landed;
    Moment written;
    bool known = false;         // by a thread that has ended
    std::vector<Moment> reads;  // the last ones of threads
};

struct Product {  // what it reads, until nobody can overwrite it any more; an operand in registers: nothing
    Range from[2];
    unsigned group, batch;  // its warpgroup; how many commits came before
    std::vector<Moment> ends;
};

struct Sums {  // registers that products under way write
    float *to;
    unsigned batch;
    std::vector<float> values;
};

struct Warpgroup {
    unsigned arrived, generation, registers;
    dev_group_factors of;  // of the product that threads have begun to ask for
    float *to[GROUP];
    unsigned registers_of[GROUP][4], batch[GROUP];
};

struct Thread {
    uint32_t time;
    unsigned commits;
    bool fenced;
    std::vector<Sums> under_way;
};

struct Hopper {
    std::map<unsigned, Object> objects;  // by place
    std::vector<Box> boxes;
    std::vector<Product> products;
    Warpgroup groups[THREADS_LIMIT / GROUP];
    Thread threads[THREADS_LIMIT];
    std::vector<Seen> seen;
    unsigned thread_count;
    bool used;
};
Hopper h;

unsigned me() { return dev_current->linear; }

void join_seen(Seen &into, const Seen &other) {
    for (size_t i = 0; i < into.size(); i++) into[i] = std::max(into[i], other[i]);
}

// A place is an address in dynamic shared memory with its block: the present one.
constexpr unsigned SPAN = 1 << 20;
unsigned in_cluster(unsigned address) {
    return present_block() * SPAN + address;
}

Object &object_at(unsigned address, const char *what) {
    const auto found = h.objects.find(in_cluster(address));
    if (found == h.objects.end()) {
        report("mbarrier", "%s: byte %u of dynamic shared memory was not initialised%s", what, address,
               where().c_str());
        abandon_launch();
    }
    if (!is_before(found->second.made))
        report("mbarrier", "%s: no barrier between its initialisation by thread %u and here%s", what,
               found->second.made.by, where().c_str());
    return found->second;
}

// Opens a phase that has all its arrivals and bytes.
void settle(Object &o) {
    if (o.pending != 0 || o.bytes != 0) return;
    o.phases++;
    o.pending = o.arrivals;
    join_seen(o.opened, o.given);
    o.opened[h.thread_count + o.number] = o.phases;
    wake_objects();
}

unsigned swizzled(unsigned at) {
    return at ^ (at >> 7 & 7) << 4;
}

char *shared_at(unsigned place) {
    return shared_of(place / SPAN) + place % SPAN;
}

void land(Box &box) {
    const Map &m = box.map;
    const bool there = box.sheet >= 0 && box.sheet < (long)m.sheets;
    for (unsigned r = 0; r < m.box_height; r++)
        for (unsigned c = 0; c < m.box_width; c++) {
            const unsigned at = box.to.begin + (r * m.box_width + c) * 2;
            const long x = box.column + (long)c, y = box.row + (long)r;
            const bool inside = there && x >= 0 && y >= 0 && x < (long)m.width && y < (long)m.height;
            const uint64_t from = (uint64_t)box.sheet * m.sheet_bytes + (uint64_t)y * m.row_bytes + (uint64_t)x * 2;
            const short zero = 0;
            memcpy(shared_at(m.swizzled ? swizzled(at) : at),
                   inside ? m.base + from : (const char *)&zero, 2);
        }
    box.landed = true;
    Object &o = h.objects.at(box.object);
    o.bytes -= box.to.end - box.to.begin;
    settle(o);
}

// The global memory that a box reads.
void announce_rows(const Box &box, const void *counter) {
    const Map &m = box.map;
    const long first = std::max(0, box.column), end = std::min((long)m.width, box.column + (long)m.box_width);
    const uintptr_t base = (uintptr_t)m.base + (uint64_t)box.sheet * m.sheet_bytes;
    if (box.sheet < 0 || box.sheet >= (long)m.sheets) return;
    for (long y = std::max(0, box.row); y < std::min((long)m.height, box.row + (long)m.box_height) && first < end; y++)
        announce(base + (uint64_t)y * m.row_bytes + (uint64_t)first * 2, (size_t)(end - first) * 2, false, counter);
}

// Reports what still uses the place that a box is copied to, and forgets the rest of what was there.
void clear_place(const Range &to) {
    const char *found = nullptr;
    for (const Box &b : h.boxes) {
        if (!b.to.meets(to)) continue;
        if (!(b.landed && is_before(b.written))) found = "another copy is under way";
        for (const Moment &m : b.reads)
            if (!is_before(m)) found = "a thread may still read";
    }
    for (const Product &p : h.products) {
        if (!p.from[0].meets(to) && !p.from[1].meets(to)) continue;
        bool ended = false;
        for (const Moment &m : p.ends) ended = ended || is_before(m);
        if (!ended) found = "a product may still read";
    }
    if (touched((uintptr_t)shared_at(to.begin), to.end - to.begin))
        found = "threads have read or written (fence.proxy.async is not modelled)";
    if (found) report("box", "copied to where %s%s", found, where().c_str());
    if (found) abandon_launch();
    for (size_t i = h.boxes.size(); i-- > 0;)
        if (h.boxes[i].to.meets(to)) h.boxes.erase(h.boxes.begin() + (long)i);
    for (size_t i = h.products.size(); i-- > 0;)
        if (h.products[i].from[0].meets(to) || h.products[i].from[1].meets(to))
            h.products.erase(h.products.begin() + (long)i);
}

struct Operand {  // as its descriptor says: 16 bytes a unit
    unsigned begin, leading, stride;
    bool turned;
    Operand(uint64_t d, bool lies_turned)
        : begin(in_cluster((unsigned)(d & 0x3fff) << 4)), leading((unsigned)(d >> 16 & 0x3fff) << 4),
          stride((unsigned)(d >> 32 & 0x3fff) << 4), turned(lies_turned) {}
    // Where element (i, k) lies, i along M or N.
    unsigned place(unsigned i, unsigned k) const {
        return swizzled(turned ? begin + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * 2
                               : begin + i / 8 * stride + i % 8 * 128 + k * 2);
    }
    // Whole rows of 128 bytes.
    Range range(unsigned extent) const {
        const unsigned first = begin & ~127u, last = place(extent - 1, DEEP - 1) & ~127u;
        return {first, last + 128};
    }
};

// All threads of a product must know that copies have brought all of it.
void check_operand(const Range &r, char name) {
    unsigned there = 0;
    for (const Box &b : h.boxes)
        if (b.to.meets(r)) {
            there += std::min(b.to.end, r.end) - std::max(b.to.begin, r.begin);
            if (b.landed && is_before(b.written)) continue;
            report("wgmma", "operand %c: a copy to it may be under way, no wait of this thread says otherwise%s", name,
                   where().c_str());
            abandon_launch();
        }
    if (there == r.end - r.begin) return;
    report("wgmma", "operand %c: bytes %u to %u of shared memory were not all copied as boxes%s", name, r.begin, r.end,
           where().c_str());
    abandon_launch();
}

// A product sees writes of threads behind a fence.proxy.async alone.
void check_untouched(const Range &r, char name) {
    if (r.end == r.begin || !touched((uintptr_t)shared_at(r.begin), r.end - r.begin)) return;
    report("wgmma", "operand %c: threads have read or written it (fence.proxy.async is not modelled)%s", name,
           where().c_str());
    abandon_launch();
}

// The registers of one thread where `count` sums of a product are under way.
Sums &sums_of(Thread &t, float *to, unsigned count) {
    for (Sums &s : t.under_way)
        if (s.to == to) return s;
    Sums &s = t.under_way.emplace_back();
    s.to = to;
    s.values.assign(to, to + count);
    for (unsigned i = 0; i < count; i++) memcpy((void *)(to + i), &UNDER_WAY, sizeof *to);
    return s;
}

// Nobody may have written to the registers since the product began.
void check_untouched(const Sums &s) {
    for (size_t i = 0; i < s.values.size(); i++)
        if (memcmp(s.to + i, &UNDER_WAY, sizeof *s.to))
            return report("wgmma", "registers of a product under way were written to%s", where().c_str());
}

// Element (i, k) of an operand in registers: a warp has 16 rows, each lane two of them and two pairs of terms.
unsigned of_registers(const Warpgroup &g, unsigned i, unsigned k) {
    const unsigned pair = g.registers_of[i / 16 * 32 + i % 8 * 4 + k % 8 / 2][k / 8 * 2 + i % 16 / 8];
    return (k % 2 ? pair >> 16 : pair) & 0xffff;
}

void multiply(Warpgroup &g, unsigned first, float (*widen)(unsigned), const Operand &a, const Operand &b) {
    static float x[TALL][DEEP], y[DEEP][WIDEST], sum[WIDEST];
    const unsigned wide = g.of.wide, count = TALL * wide / GROUP;
    auto number = [&](unsigned at) {
        unsigned short bits;
        memcpy(&bits, shared_at(at), 2);
        return widen(bits);
    };
    for (unsigned k = 0; k < DEEP; k++) {
        for (unsigned i = 0; i < TALL; i++)
            x[i][k] = g.of.registers ? widen(of_registers(g, i, k)) : number(a.place(i, k));
        for (unsigned j = 0; j < wide; j++) y[k][j] = number(b.place(j, k));
    }
    float *values[GROUP];
    for (unsigned t = 0; t < GROUP; t++) {
        Sums &s = sums_of(h.threads[first + t], g.to[t], count);
        s.batch = g.batch[t];
        if (!g.of.adds) s.values.assign(count, 0);
        values[t] = s.values.data();
    }
    for (unsigned i = 0; i < TALL; i++) {
        memset(sum, 0, sizeof sum);
        for (unsigned k = 0; k < DEEP; k++)
            for (unsigned j = 0; j < wide; j++) sum[j] += x[i][k] * y[k][j];
        for (unsigned j = 0; j < wide; j++)  // a warp has 16 rows, each lane two of them and pairs of columns
            values[i / 16 * 32 + i % 8 * 4 + j % 8 / 2][j / 8 * 4 + i % 16 / 8 * 2 + j % 2] += sum[j];
    }
}

}  // namespace

void forget_groups(unsigned threads) {
    if (!h.used) return;
    h.objects.clear();
    h.boxes.clear();
    h.products.clear();
    for (Warpgroup &g : h.groups) g = {};
    for (unsigned i = 0; i < threads; i++) h.threads[i] = {};
    h.used = false;
}

void finish_groups() {
    if (h.used && !h.threads[me()].under_way.empty())
        report("wgmma", "a thread ends while products are under way%s", where().c_str());
    for (Box &b : h.boxes) b.known = b.known || (b.landed && is_before(b.written));
}

void finish_boxes() {
    for (const Box &b : h.boxes)
        if (h.used && b.to.begin / SPAN == present_block() && !b.known)
            return report("box", "a block ends while a copy to it may be under way%s", where().c_str());
}

bool reads_box(size_t offset) {
    if (!h.used || offset >= shared_area().dynamic_bytes) return false;
    const unsigned place = in_cluster((unsigned)offset);
    for (Box &b : h.boxes) {
        if (place < b.to.begin || place >= b.to.end) continue;
        if (!b.landed || !is_before(b.written)) {
            report("box", "a thread reads where a copy may be under way%s", where().c_str());
            abandon_launch();
        }
        for (Moment &m : b.reads)
            if (m.by == me()) return m = now(), true;
        b.reads.push_back(now());
        return true;
    }
    return false;
}

Moment now() { return {me(), h.threads[me()].time, running_now.when}; }

bool is_before(const Moment &m) {
    if (m.by < THREADS_LIMIT && block_of(m.by) == block_of(me()) && in_order(m.when, running_now.when)) return true;
    const unsigned place = m.by < THREADS_LIMIT ? m.by : h.thread_count + m.by - THREADS_LIMIT;
    return h.seen[me()][place] > m.time;
}

void meet(unsigned first, unsigned count) {
    if (h.objects.empty()) return;
    Seen all = h.seen[first];
    for (unsigned i = first; i < first + count; i++) {
        join_seen(all, h.seen[i]);
        all[i] = std::max(all[i], ++h.threads[i].time);
    }
    for (unsigned i = first; i < first + count; i++) h.seen[i] = all;
}

}  // namespace device

using namespace device;

// The state of a block that uses these instructions.
static void begin() {
    if (h.used) return;
    h.used = true;
    h.thread_count = threads_at_once();
    h.seen.assign(h.thread_count, Seen(h.thread_count + OBJECTS, 0));
}

void dev_object_init(unsigned at, int arrivals) {
    begin();
    shared_place(at, 8, "mbarrier");
    if (h.objects.count(in_cluster(at)) || h.objects.size() == OBJECTS || arrivals < 1)
        report("mbarrier", "initialised twice, or more than %u of them%s", OBJECTS, where().c_str());
    const unsigned number = (unsigned)h.objects.size() % OBJECTS;
    const Seen nothing(h.thread_count + OBJECTS, 0);
    h.objects[in_cluster(at)] = {number, arrivals, arrivals, 0, 0, now(), false, nothing, nothing};
}

void dev_object_fence(void) {
    for (auto &[at, object] : h.objects) object.fenced = object.fenced || object.made.by == me();
}

void dev_object_arrive(unsigned at, int bytes) {
    begin();
    Object &o = object_at(at, "an arrival");
    if (o.pending == 0) report("mbarrier", "more arrivals than it was made for%s", where().c_str());
    join_seen(o.given, h.seen[me()]);
    o.given[me()] = std::max(o.given[me()], ++h.threads[me()].time);
    o.pending--;
    o.bytes += bytes;
    settle(o);
}

// A box that lets this mbarrier open lands, if one is under way.
static bool land_for(unsigned object) {
    for (Box &b : h.boxes)
        if (!b.landed && b.object == object) {
            land(b);
            return true;
        }
    return false;
}

int dev_object_wait(unsigned at, int parity) {
    begin();
    Object &o = object_at(at, "a wait");
    if (random_below(4) == 1 && (int)(o.phases & 1) == parity) return 0;  // it may give up: callers ask again
    while ((int)(o.phases & 1) == parity)
        if (!land_for(in_cluster(at))) wait_for_object();
    join_seen(h.seen[me()], o.opened);
    return 1;
}

unsigned device::begin_box(unsigned to, const void *map, int column, int row, int sheet, unsigned object,
                           const void *counter) {
    begin();
    Object &o = object_at(object, "a copy of a box");
    Box box = {{in_cluster(to), 0}, {}, in_cluster(object), column, row, sheet, false,
               {THREADS_LIMIT + o.number, o.phases, 0}, false, {}};
    memcpy(&box.map, map, sizeof box.map);
    if (box.map.magic != MAP_MAGIC) {
        report("box", "not a map of cuTensorMapEncodeTiled%s", where().c_str());
        abandon_launch();
    }
    const unsigned bytes = box.map.box_width * box.map.box_height * 2;
    if (!o.fenced) report("box", "its mbarrier was initialised without fence.mbarrier_init%s", where().c_str());
    if (to % (box.map.swizzled ? 1024 : 128) || to + bytes > shared_area().dynamic_bytes) {
        report("box", "its place is no multiple of 1024 bytes, or beyond shared memory%s", where().c_str());
        abandon_launch();
    }
    box.to.end = box.to.begin + bytes;
    clear_place(box.to);
    announce_rows(box, counter);
    memset(shared_at(box.to.begin), 0xff, bytes);
    h.boxes.push_back(box);
    if (random_below(2)) land(h.boxes.back());
    wake_objects();  // who waits for it lets it land
    return bytes;
}

void dev_box(unsigned to, const void *map, int column, int row, int sheet, unsigned object) {
    note_box(begin_box(to, map, column, row, sheet, object, __builtin_return_address(0)));
}

void dev_group_fence(void) {
    begin();
    h.threads[me()].fenced = true;
}

void dev_group_product(float *d, const unsigned *registers, const dev_group_factors &of) {
    begin();
    const unsigned first = me() / GROUP * GROUP;
    Warpgroup &g = h.groups[me() / GROUP];
    Thread &t = h.threads[me()];
    const Operand x(of.a, of.a_turned), y(of.b, of.b_turned);
    const Range from[2] = {of.registers ? Range{0, 0} : x.range(TALL), y.range(of.wide)};
    if (!t.fenced) report("wgmma", "no wgmma.fence between the last commit and this product%s", where().c_str());
    t.fenced = true;
    if ((!of.registers && (of.a >> 62) != 1) || (of.b >> 62) != 1)
        report("wgmma", "a descriptor without the swizzle of 128 bytes%s", where().c_str());
    for (int o = of.registers; o < 2; o++) check_operand(from[o], "ab"[o]);
    if (g.arrived > 0 && memcmp(&g.of, &of, sizeof of))
        report("wgmma", "threads of a warpgroup have other descriptors%s", where().c_str());
    g.of = of;
    g.to[me() - first] = d;
    if (of.registers) memcpy(g.registers_of[me() - first], registers, sizeof g.registers_of[0]);
    g.batch[me() - first] = t.commits;
    if (++g.arrived < GROUP) {
        for (const unsigned generation = g.generation; g.generation == generation;) wait_for_object();
        return;
    }
    for (int o = 0; o < 2; o++) check_untouched(from[o], "ab"[o]);
    multiply(g, first, of.half ? of_f16 : of_bf16, x, y);
    h.products.push_back({{from[0], from[1]}, me() / GROUP, t.commits, {}});
    g.arrived = 0;
    g.generation++;
    wake_objects();
}

void dev_group_commit(void) {
    begin();
    Thread &t = h.threads[me()];
    t.commits++;
    t.fenced = false;
}

void dev_group_wait(int groups) {
    begin();
    Thread &t = h.threads[me()];
    const unsigned done = t.commits > (unsigned)groups ? t.commits - (unsigned)groups : 0;
    for (size_t i = t.under_way.size(); i-- > 0;) {
        if (t.under_way[i].batch >= done) continue;
        check_untouched(t.under_way[i]);
        std::copy(t.under_way[i].values.begin(), t.under_way[i].values.end(), t.under_way[i].to);
        t.under_way.erase(t.under_way.begin() + (long)i);
    }
    for (Product &p : h.products)
        if (p.group == me() / GROUP && p.batch < done) p.ends.push_back(now());
}

void dev_group_registers(int count) {
    begin();
    h.groups[me() / GROUP].registers = (unsigned)std::abs(count);
    unsigned all = 0;
    for (unsigned i = 0; i < h.thread_count; i += GROUP)
        if (block_of(i) == present_block()) all += h.groups[i / GROUP].registers * GROUP;
    if (std::abs(count) % 8 || std::abs(count) < 24 || std::abs(count) > 256 || all > REGISTERS)
        report("wgmma", "setmaxnreg: %u registers of %u, or no multiple of 8 from 24 to 256%s", all, REGISTERS,
               where().c_str());
}
