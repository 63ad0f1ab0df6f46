// streams.h: streams, events and graphs, for streams.cpp and the entry points of the driver.
#pragma once
#include "device.h"

namespace device {

struct Node {  // of a graph
    std::function<void()> run;
    std::vector<int> waits_for;  // earlier nodes
    std::string what;
    uint32_t lane;  // of the stream it was captured on, from 0 within the graph
    Communicator *communicator;
};
}  // namespace device

struct CUgraph_st {
    std::vector<device::Node> nodes;
    std::vector<CUstream_st *> streams;  // of the capture, the origin first
    bool broken = false;                 // an operation forbidden in a capture happened
};
struct CUgraphExec_st {
    CUgraph_st graph;
    uint32_t first_lane;  // its captured streams have lanes of their own
    device::OperationPointer last;
};
struct CUstream_st {
    uint32_t lane = 0;
    device::OperationPointer last;
    device::Clock clock;  // operations that precede the end of its last one
    CUgraph_st *capture = nullptr;
    std::vector<int> last_nodes;  // nodes that the next captured one waits for
};
struct CUevent_st {
    device::OperationPointer operation;
    device::Clock clock;
    CUgraph_st *capture = nullptr;
    std::vector<int> nodes;
};

namespace device {
int stream_create(CUstream_st **out);
int stream_destroy(CUstream_st *stream);
int stream_synchronize(CUstream_st *stream);
int stream_query(CUstream_st *stream);
int stream_wait(CUstream_st *stream, CUevent_st *event);
int event_record(CUevent_st *event, CUstream_st *stream);
int event_synchronize(CUevent_st *event);
int synchronize();
int capture_begin(CUstream_st *stream);
int capture_end(CUstream_st *stream, CUgraph_st **out);
int graph_instantiate(CUgraphExec_st **out, const CUgraph_st *graph);
int graph_launch(CUgraphExec_st *exec, CUstream_st *stream);
int graph_exec_destroy(CUgraphExec_st *exec);
bool is_stream(const CUstream_st *stream);
bool is_behind_kernel(const CUstream_st *stream);  // the next operation waits for a kernel, and for nothing else
// Runs at once on behalf of the host, such as a copy that the host waits for.
void run_as_host(const char *what, const std::function<void()> &run);
// The error that the next call returns, during a capture or after a failed kernel, or 0.
int refuse_in_capture();
}  // namespace device
