// streams.cpp: runs operations in an order that streams, events and graphs allow. In lazy mode operations run
// only when the host waits, and only those that it waits for.
#include "streams.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace device {
namespace {

struct Named {
    Place place;
    const std::string *name;
};
struct Streams {
    std::vector<OperationPointer> queue;  // in the order of submission
    std::set<CUstream_st *> streams;
    std::set<CUgraphExec_st *> execs;
    std::set<std::string> names;
    std::vector<Named> launches = {{{0, 0}, nullptr}};  // by number; 0 is none
    std::vector<uint32_t> sequence = {0};               // per lane; lane 0 is the host's
    Clock host = {0};
    CUgraph_st *capture = nullptr;
};
Streams &all() {
    static Streams s;
    return s;
}

uint32_t new_lanes(size_t count) {
    uint32_t first = (uint32_t)all().sequence.size();
    all().sequence.resize(first + count, 0);
    return first;
}

// Gives the operation its number and completes its clock with itself.
void number(Operation &o, uint32_t lane) {
    Streams &s = all();
    uint32_t sequence = ++s.sequence[lane];
    o.launch = (uint32_t)s.launches.size();
    s.launches.push_back({{lane, sequence}, &*s.names.insert(o.what).first});
    if (o.clock.size() <= lane) o.clock.resize(lane + 1, 0);
    o.clock[lane] = sequence;
}

void run(const OperationPointer &o) {
    current_operation = o.get();
    if (o->run && !failed()) o->run();
    current_operation = nullptr;
    o->done = true;
    o->ended = seconds();
    o->run = nullptr;
    o->waits_for.clear();
}

bool is_ready(const Operation &o) {
    return std::all_of(o.waits_for.begin(), o.waits_for.end(), [](auto &w) { return w->done; });
}

void mark_needed(const OperationPointer &o, std::set<const Operation *> &needed) {
    std::vector<OperationPointer> open = {o};
    while (!open.empty()) {
        OperationPointer next = open.back();
        open.pop_back();
        if (!next->done && needed.insert(next.get()).second)
            open.insert(open.end(), next->waits_for.begin(), next->waits_for.end());
    }
}

// Runs operations until `until` is done, or all of them. With a seed any ready operation may be next; without,
// only those that `until` waits for run, in lazy mode the latest first.
void run_until(const OperationPointer &until) {
    std::vector<OperationPointer> &queue = all().queue;
    std::set<const Operation *> needed;
    if (until && !switches.seed) mark_needed(until, needed);
    while (until ? !until->done : !queue.empty()) {
        std::vector<size_t> ready;
        for (size_t i = 0; i < queue.size() && ready.size() < 64; i++)
            if (is_ready(*queue[i]) && (needed.empty() || needed.count(queue[i].get())))
                ready.push_back(i);
        if (ready.empty()) {
            fprintf(stderr, "device: operations of streams wait for each other\n");
            abort();
        }
        bool latest = switches.lazy && !switches.seed;
        size_t at = latest ? ready.back() : ready[random_below((unsigned)ready.size())];
        OperationPointer o = queue[at];
        queue.erase(queue.begin() + (ptrdiff_t)at);
        run(o);
    }
}

void enqueue(const OperationPointer &o) {
    all().queue.push_back(o);
    if (!switches.lazy) run_until(o);
}

void add_wait(Operation &o, const OperationPointer &other) {
    if (!other) return;
    join(o.clock, other->clock);
    if (!other->done) o.waits_for.push_back(other);
}

int wait_on_host(const OperationPointer &o, const Clock &clock) {
    if (o) run_until(o);
    join(all().host, clock);
    return failed() ? LAUNCH_FAILED : SUCCESS;
}

uint32_t capture_lane(CUgraph_st *graph, CUstream_st *stream) {
    auto at = std::find(graph->streams.begin(), graph->streams.end(), stream);
    if (at == graph->streams.end()) at = graph->streams.insert(at, stream);
    return (uint32_t)(at - graph->streams.begin());
}

void add_unique(std::vector<int> &to, int node) {
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
}

int capture_node(CUstream_st *stream, const std::string &what, std::function<void()> work,
                 Communicator *communicator) {
    CUgraph_st *graph = stream->capture;
    Node n = {std::move(work), stream->last_nodes, what, capture_lane(graph, stream), communicator};
    for (int i = (int)graph->nodes.size() - 1; communicator && i >= 0; i--)
        if (graph->nodes[(size_t)i].communicator == communicator) {
            add_unique(n.waits_for, i);
            break;
        }
    stream->last_nodes = {(int)graph->nodes.size()};
    graph->nodes.push_back(std::move(n));
    return SUCCESS;
}

}  // namespace

Operation *current_operation;
bool hung;

static int refuse_hung() {
    if (hung) report("nccl", "the host waits for ever: a collective has failed");
    return hung ? LAUNCH_FAILED : SUCCESS;
}

void join(Clock &into, const Clock &other) {
    if (into.size() < other.size()) into.resize(other.size(), 0);
    for (size_t i = 0; i < other.size(); i++) into[i] = std::max(into[i], other[i]);
}

Place place_of(uint32_t launch) {
    return all().launches[launch].place;
}
const char *name_of(uint32_t launch) {
    return all().launches[launch].name->c_str();
}
bool capturing() {
    return all().capture != nullptr;
}
void drain() {
    run_until(nullptr);
}
bool is_stream(const CUstream_st *stream) {
    return all().streams.count((CUstream_st *)stream) != 0;
}

bool is_behind_kernel(const CUstream_st *stream) {
    if (!is_stream(stream)) return false;
    const bool captures = stream->capture != nullptr;
    if (captures ? stream->last_nodes.size() != 1 : !stream->last) return false;
    const std::string &what = captures ? stream->capture->nodes[(size_t)stream->last_nodes[0]].what : stream->last->what;
    return what.rfind("kernel ", 0) == 0;
}

int refuse_in_capture() {
    if (all().capture) all().capture->broken = true;
    return all().capture ? CAPTURE_UNSUPPORTED : failed() ? LAUNCH_FAILED : SUCCESS;
}

int submit(CUstream_st *stream, const std::string &what, std::function<void()> work,
           Communicator *communicator) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (stream->capture) return capture_node(stream, what, std::move(work), communicator);
    auto o = std::make_shared<Operation>();
    o->run = std::move(work);
    o->what = what;
    o->clock = all().host;
    join(o->clock, stream->clock);
    add_wait(*o, stream->last);
    if (communicator) add_wait(*o, communicator->last);
    number(*o, stream->lane);
    stream->last = o;
    stream->clock = o->clock;
    if (communicator) communicator->last = o;
    enqueue(o);
    return SUCCESS;
}

void run_as_host(const char *what, const std::function<void()> &work) {
    Operation o;
    o.what = what;
    o.clock = all().host;
    number(o, 0);
    join(all().host, o.clock);
    current_operation = &o;
    work();
    current_operation = nullptr;
}

int stream_create(CUstream_st **out) {
    *out = new CUstream_st;
    (*out)->lane = new_lanes(1);
    all().streams.insert(*out);
    return SUCCESS;
}

int stream_destroy(CUstream_st *stream) {
    if (!is_stream(stream) || stream->capture) return INVALID_HANDLE;
    if (stream->last) run_until(stream->last);
    all().streams.erase(stream);
    delete stream;
    return SUCCESS;
}

int stream_synchronize(CUstream_st *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (stream->capture) return refuse_in_capture();
    if (int refused = refuse_hung()) return refused;
    return wait_on_host(stream->last, stream->clock);
}

int stream_query(CUstream_st *stream) {
    if (hung) return NOT_READY;
    const int code = stream_synchronize(stream);
    return hung ? NOT_READY : code;
}

int synchronize() {
    if (int refused = refuse_in_capture()) return refused;
    if (int refused = refuse_hung()) return refused;
    drain();
    for (CUstream_st *s : all().streams) join(all().host, s->clock);
    return failed() ? LAUNCH_FAILED : SUCCESS;
}

int event_record(CUevent_st *event, CUstream_st *stream) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    event->capture = stream->capture;
    event->nodes = stream->last_nodes;
    if (stream->capture) return SUCCESS;
    int code = submit(stream, "event", [] {});
    event->operation = stream->last;
    event->clock = stream->clock;
    return code;
}

int event_synchronize(CUevent_st *event) {
    if (event->capture) return refuse_in_capture();
    return wait_on_host(event->operation, event->clock);
}

int stream_wait(CUstream_st *stream, CUevent_st *event) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (event->capture) {
        if (stream->capture && stream->capture != event->capture) return CAPTURE_ISOLATION;
        if (!stream->capture) stream->last_nodes.clear();
        stream->capture = event->capture;
        capture_lane(stream->capture, stream);
        for (int node : event->nodes) add_unique(stream->last_nodes, node);
        return SUCCESS;
    }
    if (stream->capture)  // an event from outside of the capture
        return CAPTURE_ISOLATION;
    join(stream->clock, event->clock);
    if (event->operation && !event->operation->done) {
        int code = submit(stream, "wait", nullptr);
        if (!stream->last->done) stream->last->waits_for.push_back(event->operation);
        return code;
    }
    return SUCCESS;
}

int capture_begin(CUstream_st *stream) {
    if (!is_stream(stream)) return CAPTURE_UNSUPPORTED;  // the default stream cannot be captured
    if (all().capture) return CAPTURE_UNSUPPORTED;
    all().capture = stream->capture = new CUgraph_st;
    stream->capture->streams.push_back(stream);
    stream->last_nodes.clear();
    return SUCCESS;
}

int capture_end(CUstream_st *stream, CUgraph_st **out) {
    *out = nullptr;
    if (!is_stream(stream) || !stream->capture) return CAPTURE_UNMATCHED;
    CUgraph_st *graph = stream->capture;
    if (graph->streams[0] != stream) return CAPTURE_UNMATCHED;
    std::set<int> joined;
    std::vector<int> open = stream->last_nodes;
    while (!open.empty()) {
        int node = open.back();
        open.pop_back();
        if (joined.insert(node).second)
            for (int other : graph->nodes[(size_t)node].waits_for) open.push_back(other);
    }
    for (CUstream_st *s : all().streams)
        if (s->capture == graph) {
            s->capture = nullptr;
            s->last_nodes.clear();
        }
    all().capture = nullptr;
    int code = graph->broken                          ? CAPTURE_INVALIDATED
               : joined.size() != graph->nodes.size() ? CAPTURE_UNJOINED
                                                      : SUCCESS;
    if (code == SUCCESS)
        *out = graph;
    else
        delete graph;
    return code;
}

int graph_instantiate(CUgraphExec_st **out, const CUgraph_st *graph) {
    *out = new CUgraphExec_st{*graph, new_lanes(graph->streams.size()), nullptr};
    all().execs.insert(*out);
    return SUCCESS;
}

// Launches of the same graph run one after another, whatever their streams.
int graph_launch(CUgraphExec_st *exec, CUstream_st *stream) {
    if (!is_stream(stream) || !all().execs.count(exec)) return INVALID_HANDLE;
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    auto begin = std::make_shared<Operation>(), end = std::make_shared<Operation>();
    begin->what = "begin of a graph";
    end->what = "end of a graph";
    begin->clock = all().host;
    join(begin->clock, stream->clock);
    add_wait(*begin, stream->last);
    add_wait(*begin, exec->last);
    number(*begin, stream->lane);
    std::vector<OperationPointer> made = {begin};
    add_wait(*end, begin);
    for (const Node &n : exec->graph.nodes) {
        auto o = std::make_shared<Operation>();
        o->run = n.run;
        o->what = n.what;
        add_wait(*o, begin);
        for (int other : n.waits_for) add_wait(*o, made[(size_t)other + 1]);
        if (n.communicator) {
            add_wait(*o, n.communicator->last);
            n.communicator->last = o;
        }
        number(*o, exec->first_lane + n.lane);
        add_wait(*end, o);
        made.push_back(o);
    }
    number(*end, stream->lane);
    made.push_back(end);
    stream->last = exec->last = end;
    stream->clock = end->clock;
    all().queue.insert(all().queue.end(), made.begin(), made.end());
    if (!switches.lazy) run_until(end);
    return SUCCESS;
}

int graph_exec_destroy(CUgraphExec_st *exec) {
    if (!all().execs.count(exec)) return INVALID_HANDLE;
    drain();
    all().execs.erase(exec);
    delete exec;
    return SUCCESS;
}

bool graph_holds(const Communicator *communicator) {
    for (CUgraphExec_st *exec : all().execs)
        for (const Node &n : exec->graph.nodes)
            if (n.communicator == communicator) return true;
    return false;
}

}  // namespace device
