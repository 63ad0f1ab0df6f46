// step: step.c, where the host sends the calls of kernels to a device.

//@ head(header, sharing, twins, statistics, branches, joins)
$header
#include "model.h"

#include <string.h>

#include "runtime/loop/stop.h"

/* -- what is sent to the device ---------------------------------------------------------------- */

/* Work goes to a stream in order. After the first error nothing more is sent. */
typedef struct queue {
    ga_device *device;
    ga_cuda_stream stream;
    const ga_kernel *kernels;
//% if twins then
    const ga_twins *twins;
//% end
    int code;
    ga_err *e;
//% if branches then
    ga_cuda_stream beside; /* for calls that run beside others */
    ga_event parted;
//% end
//% if joins then
    const ga_event *ended;
    bool apart[$branches]; /* sent, and nothing waits for it yet */
//% end
//% if statistics then
    bool evaluates; /* no training: ranks have other numbers of batches, and gather nothing */
//% end
} queue;

static queue queue_of(model *m, ga_err *e) {
    return (queue){
        .device = m->device, .stream = m->stream, .kernels = m->kernels, .e = e,
//% if twins then
        .twins = &m->twins,
//% end
//% if branches then
        .beside = m->beside, .parted = m->parted,
//% end
//% if joins then
        .ended = m->ended,
//% end
    };
}

//% if sharing then
/* Blocks with `bytes` of dynamic shared memory each. */
static void launch_sharing(queue *q, int kernel, unsigned blocks, unsigned threads, unsigned bytes, void **args) {
    const ga_launch_shape shape = {.blocks = {blocks}, .threads = {threads}, .shared_bytes = bytes,
                                   .dependent = true};
    if (q->code == 0)
        q->code = ga_device_launch(q->device, q->stream, q->kernels[kernel], &shape, args, q->e);
}

static void launch(queue *q, int kernel, unsigned blocks, unsigned threads, void **args) {
    launch_sharing(q, kernel, blocks, threads, 0, args);
}
//% else
static void launch(queue *q, int kernel, unsigned blocks, unsigned threads, void **args) {
    const ga_launch_shape shape = {.blocks = {blocks}, .threads = {threads}, .dependent = true};
    if (q->code == 0)
        q->code = ga_device_launch(q->device, q->stream, q->kernels[kernel], &shape, args, q->e);
}
//% end

//@ order()
/* Later work on the stream `then` waits for all earlier work on the stream `first`. */
static void order(queue *q, ga_event event, ga_cuda_stream first, ga_cuda_stream then) {
    if (q->code == 0) q->code = ga_device_record(q->device, event, first, q->e);
    if (q->code == 0) q->code = ga_device_wait(q->device, then, event, q->e);
}

//@ includes(statistics)
//% if statistics then
static ga_address gather_statistics(queue *q, model *m, ga_address first, ga_address second, int channels,
                                    double values);

//% end
#include "launch.c" /* one function per kernel */
#include "probes.c" /* `make probe`: a look at what each call below writes; else nothing */

//@ views(view_calls, packs, narrows)
//% if packs then
/* Copies of weights in the layout that kernels read, made once per update. */
static void pack_views(queue *q, model *m) {
    $view_calls
}
//% end
//% if packs and narrows then

//% end
//% if narrows then
/* All copies of weights: those in 16 bits, too, which an update writes beside the parameters. */
static void pack_all(queue *q, model *m) {
    narrow_all(q, m->device_memory[DEVICE_VIEWS], m->device_w, TRAINED);
//% if packs then
    pack_views(q, m);
//% end
}
//% end

//@ forward(forward, evaluation, chunked, branches)
/* -- one micro-batch --------------------------------------------------------------------------- */

static void forward(queue *q, model *m, const batch *b) {
    $forward
}

//% if chunked then
/* An evaluation: losses and metrics are computed for some rows at a time. */
//% else
/* An evaluation: the losses and the metrics. */
//% end
static void evaluate(queue *q, model *m, const batch *b) {
    forward(q, m, b);
//% if evaluation.text ~= "" then
    $evaluation
//% end
//% if branches then
    branches_join(q);
//% end
}

//@ backward(backward, chunked, begins)
//% if chunked then
/* The last layer and its losses are computed here, for some rows at a time. The logits of these rows go from
 * the loss straight into the gradients; the whole logits are never in memory.
 *
//% end
$begins The first micro-step of a cycle (GA_ONLY, GA_FIRST) writes the gradients. All others (GA_NEXT, GA_LAST)
 * add to them, each kernel to those that it computes, so nothing is ever set to zero. */
static void backward(queue *q, model *m, const batch *b, ga_role role) {
    $backward
}

//@ micro(batch)
enum { SINGLE = 2 }; /* behind the two slots of the ring: a micro-step on its own, an evaluation */

/* Where micro-batch k of the cycle in a slot of the ring lies. */
static ga_address place_of(const model *m, int slot, int k) {
    return m->device_batches + (size_t)(slot * LONGEST + k) * BATCH_BYTES;
}

static batch batch_of(ga_address at) {
    return (batch){
        $batch
    };
}

static void micro(queue *q, model *m, int slot, int k, ga_role role) {
    const batch b = batch_of(place_of(m, slot, k));
    forward(q, m, &b);
    backward(q, m, &b, role);
}

//@ boundary(boundary_calls, filed, packs)
/* -- the boundary ------------------------------------------------------------------------------ */

//% if filed then
/* One update, but for what lies in the file: host_update does that, when the host knows the decision. */
static void boundary(queue *q, model *m) {
    $boundary_calls
}
//% else
/* One update. The device decides whether it is skipped: the host sends all of it and does not wait. */
static void boundary(queue *q, model *m) {
    $boundary_calls
//% if packs then
    pack_views(q, m);
//% end
}
//% end

//@ cycles(functions)
/* -- cycles ------------------------------------------------------------------------------------ */

$functions

//@ graphs(play_cases, micro_cases)
/* Sends the work of a graph: while it is captured, or kernel by kernel with --no-graph. */
static void play(queue *q, model *m, int what) {
    switch (what) {
    $play_cases
    $micro_cases
    default: break;
    }
}

static int capture(model *m, int what, ga_err *e) {
    queue q = queue_of(m, e);
    GA_TRY(ga_device_capture_begin(m->device, m->stream, e));
    play(&q, m, what);
    ga_err *end = q.code < 0 ? NULL : e; /* the first error is the one to be told */
    const int code = ga_device_capture_end(m->device, m->stream, &m->graphs[what], end);
    return q.code < 0 ? q.code : code;
}

static int run_graph(model *m, int what, ga_err *e) {
    queue q = queue_of(m, e);
    if (!m->eager) return ga_device_graph_launch(m->device, m->graphs[what], m->stream, e);
    play(&q, m, what);
    return q.code;
}

//@ transfers(parallel, hosted)
/* -- between host and device ------------------------------------------------------------------- */

/* Fetches the decisions and sums of the device, behind all that was sent so far. */
static int read_back(model *m, int slot, ga_err *e) {
    GA_TRY(ga_device_fetch(m->device, m->stream, &m->transfer->step[slot], m->block, sizeof(step), e));
    return ga_device_record(m->device, m->decided[slot], m->stream, e);
}

/* Waits for it. */
static int finish(model *m, int slot, ga_err *e) {
//% if parallel then
    GA_TRY(ga_nccl_sync(m->nccl, m->stream, e));
//% else
    GA_TRY(ga_device_wait_host(m->device, m->decided[slot], e));
//% end
    m->step = m->transfer->step[slot];
    memcpy(m->sums, m->step.sums, sizeof m->sums);
    return 0;
}

static int finish_all(model *m, ga_err *e) {
    GA_TRY(read_back(m, 0, e));
    return finish(m, 0, e);
}

/* The batches of a cycle of r, the loader's from number `from` on, go to a slot of the ring beside
 * what the device is doing. */
static int send_cycle(model *m, int slot, int from, int r, ga_err *e) {
    GA_TRY(ga_device_wait(m->device, m->copying, m->consumed[slot], e));
    for (int k = 0; k < r; k++)
        GA_TRY(ga_device_send(m->device, m->copying, place_of(m, slot, k),
                              ga_loader_field(m->loader, from + k, 0), BATCH_BYTES, e));
    return ga_device_record(m->device, m->arrived[slot], m->copying, e);
}

//% if hosted then
/* Makes the host's part of the update, and counts the cycle; its sums are cleared on the device. */
//% else
/* Counts the cycle; its sums are cleared on the device. Requests to stop or save wait while the next
 * cycle is under way: what they are to find on the device is gone. */
//% end
static int commit(model *m, ga_err *e) {
//% if hosted then
    if (!m->step.skip) GA_TRY(host_update(m, e));
//% end
//% if parallel then
    m->stop = ga_stop_agreed(m->step.stop, &m->save);
//% else
    m->stop = ga_stop_agreed(m->begun ? 0 : ga_stop_requests(), &m->save);
//% end
    return ga_cycle_commit(&m->count, !m->step.skip, e);
}

//@ starts(cycle_graphs, micro_graphs)
/* The graph of a cycle of r micro-steps whose batches are in slot 0; -1: none was captured. */
static int cycle_graph(int r) {
    switch (r) {
    $cycle_graphs
    default: return -1;
    }
}

/* The graph of the next micro-step; that of a cycle's last one contains the boundary. */
static int micro_graph(const model *m) {
    static const int MICRO[] = {
        $micro_graphs
    };
    return MICRO[ga_cycle_role(&m->count)];
}

/* Sends the next micro-step of a cycle that has no graph of its own; its batch is number k in a slot of
 * the ring. */
static int send_micro(model *m, int slot, int k, ga_err *e) {
    const ga_address sent = place_of(m, slot, k), read = place_of(m, SINGLE, 0);
    GA_TRY(ga_device_copy(m->device, m->stream, read, sent, BATCH_BYTES, e));
    return run_graph(m, micro_graph(m), e);
}

/* Starts the graph of a cycle whose batches are in a slot of the ring. */
static int start_graph(model *m, int slot, int graph, ga_err *e) {
    GA_TRY(ga_device_wait(m->device, m->stream, m->arrived[slot], e));
    GA_TRY(run_graph(m, graph + slot, e));
    GA_TRY(ga_device_record(m->device, m->consumed[slot], m->stream, e));
    return read_back(m, slot, e);
}

/* Starts the micro-steps of a cycle without a graph of its own. */
static int start_micros(model *m, int slot, int r, ga_err *e) {
    GA_TRY(ga_device_wait(m->device, m->stream, m->arrived[slot], e));
    for (int k = 0; k < r; k++) {
        GA_TRY(send_micro(m, slot, k, e));
        GA_TRY(ga_cycle_micro_done(&m->count, e));
    }
    GA_TRY(ga_device_record(m->device, m->consumed[slot], m->stream, e));
    return read_back(m, slot, e);
}

//@ cycle(name, hosted)
//% if hosted then
/* While a cycle is computed, the batches of the next one are sent. The next one starts when the host has made its part
 * of the update. */
//% else
/* While a cycle is computed, the batches of the next one are sent. Where nothing is to be done between
 * both, the next one is started too, before the host waits for this one: the device waits for nobody. */
//% end
int $(name)_model_cycle(model *m, int r, ga_err *e) {
    const int slot = m->slot, graph = cycle_graph(r);
    GA_TRY(ga_cycle_begin(&m->count, r, e));
    m->transfer->stop = ga_stop_requests();
    if (!m->ahead) GA_TRY(send_cycle(m, slot, 0, r, e));
    if (graph < 0) {
        GA_TRY(start_micros(m, slot, r, e));
    } else {
//% if hosted then
        GA_TRY(start_graph(m, slot, graph, e));
//% else
        if (!m->begun) GA_TRY(start_graph(m, slot, graph, e));
//% end
        for (int k = 0; k < r; k++) GA_TRY(ga_cycle_micro_done(&m->count, e));
    }
    m->slot = !slot;
    const int next = ga_loader_ahead(m->loader);
    m->ahead = next > 0;
    if (m->ahead) GA_TRY(send_cycle(m, m->slot, r, next, e));
//% if not hosted then
    const int next_graph = cycle_graph(next);
    m->begun = m->goes_on && next_graph >= 0 && ga_stop_requests() == 0;
    if (m->begun) GA_TRY(start_graph(m, m->slot, next_graph, e));
//% end
    GA_TRY(finish(m, slot, e));
    return commit(m, e);
}

//@ micro_step(name)
int $(name)_model_micro(model *m, int k, ga_err *e) {
    const int what = micro_graph(m);
    m->ahead = false;
    m->transfer->stop = ga_stop_requests();
    GA_TRY(ga_device_send(m->device, m->stream, place_of(m, SINGLE, 0),
                          ga_loader_field(m->loader, k, 0), BATCH_BYTES, e));
    GA_TRY(run_graph(m, what, e));
    GA_TRY(finish_all(m, e));
    return ga_cycle_micro_done(&m->count, e);
}

int $(name)_model_boundary(model *m, ga_err *e) { return commit(m, e); }

//@ evaluations(name, chunked, statistics, branches)
int $(name)_model_evaluate_batch(model *m, ga_err *e) {
    const ga_address at = place_of(m, SINGLE, 0);
    const batch b = batch_of(at);
    queue q = queue_of(m, e);
    GA_TRY(ga_device_send(m->device, q.stream, at, m->eval_batch, BATCH_BYTES, e));
//% if statistics then
    q.evaluates = true;
//% end
    evaluate(&q, m, &b);
    GA_TRY(q.code);
    return finish_all(m, e);
}
//% if chunked then

int $(name)_model_forward_batch(model *m, ga_err *e) {
    const ga_address at = place_of(m, SINGLE, 0);
    const batch b = batch_of(at);
    queue q = queue_of(m, e);
    GA_TRY(ga_device_send(m->device, q.stream, at, m->eval_batch, BATCH_BYTES, e));
//% if statistics then
    q.evaluates = true;
//% end
    forward(&q, m, &b);
//% if branches then
    branches_join(&q);
//% end
    GA_TRY(q.code);
    return finish_all(m, e);
}
//% end

//@ averages(name, sharded, gathers, placed, pack)
int $(name)_model_exchange(model *m, ga_err *e) {
    queue own = queue_of(m, e), *const q = &own; /* what a probe looks at kernels through is named q */
//% if sharded then
    for (const range *r = m->own.all.first; r < m->own.all.end; r++)
//% if placed then
        exchange(q, r, 0, values_of(m, r, m->flat_w, m->device_w),
                 array_in(m->placed.places[r->bucket] != GA_ON_DEVICE, m->state_ema, m->device_state_ema));
//% else
        exchange(q, r, 0, m->device_w, m->device_state_ema);
//% end
//% if gathers then
    parameters_gather(q, m);
//% end
//% else
    exchange(q, &RANGES.all, 0, m->device_w, m->device_state_ema);
//% end
    $pack(q, m);
    return q->code;
}

//@ memory(name, by_epoch, uploads, downloads, parallel, split, lists, some, pack)
//% if some then
/* Copies what lies `there`, on the device, of an array of which the host has the elements `here`. */
static int upload(model *m, ga_address device, const ga_shard *there, const real *host, const ga_shard *here,
                  ga_err *e) {
    for (const ga_piece *p = there->pieces; p < there->pieces + there->count; p++)
        GA_TRY(ga_device_upload(m->device, device + sizeof(real) * (size_t)p->at,
                                host + ga_shard_place(here, p->from), sizeof(real) * (size_t)p->n, e));
    return 0;
}

static int download(model *m, real *host, const ga_shard *here, ga_address device, const ga_shard *there, ga_err *e) {
    for (const ga_piece *p = there->pieces; p < there->pieces + there->count; p++)
        GA_TRY(ga_device_download(m->device, host + ga_shard_place(here, p->from),
                                  device + sizeof(real) * (size_t)p->at, sizeof(real) * (size_t)p->n, e));
    return 0;
}

//% end
int $(name)_model_push_step(model *m, ga_err *e) {
    step *s = &m->step;
    memcpy(s->sums, m->sums, sizeof m->sums);
    s->nominal = m->nominal;
    s->schedule_total = (double)m->schedule_total;
//% if by_epoch then
    s->epoch_cycles = m->epoch_cycles;
    s->epoch_shift = m->epoch_shift;
//% end
    s->update = m->count.update;
    s->cycle = m->count.cycle;
//% if lists > 0 then
    for (int k = 1; k <= $lists; k++) {
        s->lists[k - 1] = ga_comm_list(m->comm, k);
        s->list_ranks[k - 1] = ga_comm_group_size(m->comm, k);
    }
//% end
    return ga_device_upload(m->device, m->block, s, sizeof *s, e);
}

int $(name)_model_download(model *m, ga_err *e) {
    $downloads
    return 0;
}

int $(name)_model_refresh(model *m, ga_err *e) {
    queue q = queue_of(m, e);
//% if parallel then
    GA_TRY(connect_ranks(m, e));
//% end
    $uploads
    GA_TRY($(name)_model_push_step(m, e));
//% if split then
    sum_small(&q, m, 0, SMALL_NONFINITE, 0);
    sum_small(&q, m, SMALL_NONFINITE, SMALL, LARGEST);
//% elseif parallel then
    sum_small(&q, m, 0, SMALL, LARGEST);
//% end
    $pack(&q, m);
    GA_TRY(q.code);
    GA_TRY(finish_all(m, e));
    for (int what = 0; what < GRAPHS && !m->eager; what++) GA_TRY(capture(m, what, e));
    return 0;
}
