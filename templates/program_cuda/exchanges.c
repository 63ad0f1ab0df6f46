// exchanges: the parts of step.c in which ranks exchange, from device memory to device memory, in stream order.

//@ buckets(overlap, grouped)
//% if overlap then
/* Starts the sum of a bucket over the ranks, beside the rest of the backward pass. Only the last micro-step of a cycle
 * does. */
//% else
/* The sum of a bucket over the ranks. Only the last micro-step of a cycle takes it. */
//% end
static void bucket_start(queue *q, model *m, int i) {
    const ga_bucket *b = &m->division.buckets[i];
    const ga_address values = m->device_g + sizeof(real) * (size_t)b->offset;
//% if grouped then
    const ga_exchange sum = {.kind = b->kind, .n = b->n, .cuts = ga_division_cuts(&m->division, i), .type = REAL,
                             .wire = REAL, .group = m->division.groups[i]};
//% else
    const ga_exchange sum = {.kind = b->kind, .n = b->n, .cuts = ga_division_cuts(&m->division, i), .type = REAL,
                             .wire = REAL};
//% end
    order(q, m->forked, q->stream, m->reducing);
    if (q->code == 0) q->code = ga_nccl_exchange(m->nccl, m->reducing, values, &sum, q->e);
//% if not overlap then
    order(q, m->joined, m->reducing, q->stream);
//% end
}

static void buckets_finish(queue *q, model *m) { order(q, m->joined, m->reducing, q->stream); }

//@ values_of()
/* An array of the host, which kernels read and write by the same address, or that of the device. */
static ga_address array_in(bool on_host, const real *host, ga_address device) {
    return on_host ? (ga_address)(uintptr_t)host : device;
}

/* The one that has the values of a part. */
static ga_address values_of(const model *m, const range *r, const real *host, ga_address device) {
    return array_in(m->placed.places[r->bucket] == GA_ON_HOST, host, device);
}

//@ windows(overlap, windows, gaps, gap_rows, waits, collected, placed)
$windows
//% if gaps then
/* Gaps between tensors, by bucket: the first of bucket i is GAPS[i]. */
$gap_rows
//% end

/* Starts the exchange of a bucket: its gradients in their window are summed over the ranks, and written to what each
 * rank keeps, or added. Each micro-step does. */
static void bucket_start(queue *q, model *m, int i, bool adds) {
    const ga_bucket *b = &m->division.buckets[i];
    const int64_t *cuts = ga_division_cuts(&m->division, i), from = cuts[m->division.rank];
    const int64_t own = cuts[m->division.rank + 1] - from;
    const ga_exchange sum = {.kind = b->kind, .n = b->n, .cuts = cuts, .type = REAL, .wire = REAL};
//% if collected then
    const bool scatters = b->kind == GA_REDUCE_SCATTER; /* else it is what the cycle has collected */
    const ga_address window = scatters ? m->windows + sizeof(real) * (size_t)WINDOWS[i] : m->device_collected;
//% else
    const ga_address window = m->windows + sizeof(real) * (size_t)WINDOWS[i];
//% end
//% if placed then
    const ga_address kept = array_in(m->placed.places[i] == GA_ON_HOST, m->flat_g, m->device_g)
        + sizeof(real) * (size_t)ga_placed_at(&m->placed, i);
//% else
    const ga_address kept = m->device_g + sizeof(real) * (size_t)ga_division_place(&m->division, i);
//% end
//% if gaps then
    if (GAPS[i] < GAPS[i + 1]) clear_gaps(q, window, GAPS[i], GAPS[i + 1] - GAPS[i]);
//% end
    order(q, m->forked, q->stream, m->reducing);
    if (q->code == 0) q->code = ga_nccl_exchange(m->nccl, m->reducing, window, &sum, q->e);
    queue aside = *q; /* work beside the backward pass */
    aside.stream = m->reducing;
//% if collected then
    if (own > 0 && scatters) take_part(&aside, kept, window + sizeof(real) * (size_t)from, own, adds);
//% else
    if (own > 0) take_part(&aside, kept, window + sizeof(real) * (size_t)from, own, adds);
//% end
    q->code = aside.code;
//% if waits then
    if (q->code == 0) q->code = ga_device_record(q->device, m->left[i], m->reducing, q->e);
//% end
//% if not overlap then
    order(q, m->joined, m->reducing, q->stream);
//% end
}

//% if waits then
/* Later work waits until the gradients of a bucket have left its window. */
static void bucket_wait(queue *q, model *m, int i) {
    if (q->code == 0) q->code = ga_device_wait(q->device, q->stream, m->left[i], q->e);
}

//% end
static void buckets_finish(queue *q, model *m) { order(q, m->joined, m->reducing, q->stream); }

//@ chunks(placed, pool)
//% if pool then
/* Where the own cut of a chunk that lies in host memory stays on the device from the forward to the backward pass, in
 * the pool; -1: it does not. */
$pool

//% end
//% if placed then
/* Starts the gather of a chunk: each rank has its own part of it. It waits for all kernels that were sent before: they
 * read what has had this memory. A part that lies in host memory is sent straight to its place in the window. */
//% else
/* Starts the gather of a chunk: each rank has its own part of it. It waits for all kernels that were sent before: they
 * read what has had this memory. */
//% end
//% if pool then
static void chunk_start(queue *q, model *m, const chunk_order *pass, int i) {
//% else
static void chunk_start(queue *q, model *m, int i) {
//% end
    const ga_bucket *b = &m->division.buckets[i];
    const ga_address window = m->chunks + sizeof(real) * (size_t)CHUNKS[i];
//% if placed then
    const int64_t *cuts = ga_division_cuts(&m->division, i), from = cuts[m->division.rank];
    const int64_t n = cuts[m->division.rank + 1] - from, at = ga_placed_at(&m->placed, i);
    const bool on_host = m->placed.places[i] == GA_ON_HOST;
//% if pool then
    const bool stays = POOL[i] >= 0 && (pass == &FORWARD_CHUNKS || pass == &BACKWARD_CHUNKS);
    const bool comes = on_host && !(stays && pass == &BACKWARD_CHUNKS);
    const ga_address own = stays ? m->device_memory[DEVICE_POOL] + sizeof(real) * (size_t)POOL[i]
        : on_host ? window + sizeof(real) * (size_t)from : m->device_w + sizeof(real) * (size_t)at;
//% else
    const ga_address own = on_host ? window + sizeof(real) * (size_t)from : m->device_w + sizeof(real) * (size_t)at;
//% end
    const ga_exchange all = {.kind = GA_ALL_GATHER, .n = b->n, .cuts = cuts, .type = REAL, .wire = REAL};
    order(q, m->forked, q->stream, m->reducing);
//% if pool then
    if (q->code == 0 && comes)
//% else
    if (q->code == 0 && on_host)
//% end
        q->code = ga_device_send(q->device, m->reducing, own, m->flat_w + at, sizeof(real) * (size_t)n, q->e);
//% else
    const ga_address own = m->device_w + sizeof(real) * (size_t)ga_division_place(&m->division, i);
    const ga_exchange all = {.kind = GA_ALL_GATHER, .n = b->n, .cuts = ga_division_cuts(&m->division, i), .type = REAL,
                             .wire = REAL};
    order(q, m->forked, q->stream, m->reducing);
//% end
    if (q->code == 0) q->code = ga_nccl_gather(m->nccl, m->reducing, window, own, &all, q->e);
    if (q->code == 0) q->code = ga_device_record(q->device, m->gathered[i], m->reducing, q->e);
}

/* Behind this, place k of a pass is there for all kernels that are sent. */
static void chunk_need(queue *q, model *m, const chunk_order *pass, int k) {
    for (int i = k > 0 ? k + PREFETCH : 0; i <= k + PREFETCH && i < pass->count; i++)
//% if pool then
        chunk_start(q, m, pass, pass->chunks[i]);
//% else
        chunk_start(q, m, pass->chunks[i]);
//% end
    if (q->code == 0) q->code = ga_device_wait(q->device, q->stream, m->gathered[pass->chunks[k]], q->e);
}

//@ gather()
/* Each rank has updated its own part of the parameters: all get the parts of all. */
static void parameters_gather(queue *q, model *m) {
    for (int i = 0; i < m->division.count; i++) {
        const ga_bucket *b = &m->division.buckets[i];
        const ga_address values = m->device_w + sizeof(real) * (size_t)b->offset;
        const ga_exchange gathered = {.kind = GA_ALL_GATHER, .n = b->n, .cuts = ga_division_cuts(&m->division, i),
                                      .type = REAL, .wire = REAL};
        if (q->code == 0 && b->kind == GA_REDUCE_SCATTER)
            q->code = ga_nccl_exchange(m->nccl, q->stream, values, &gathered, q->e);
    }
}

//@ statistics(sizes)
/* Gathers two numbers of each channel from all ranks and, unless it is 0, how many values of a channel this rank has.
 * Returns where they are, those of each rank behind each other. */
static ga_address gather_statistics(queue *q, model *m, ga_address first, ga_address second, int channels,
                                    double values) {
    const ga_address all = m->device_memory[DEVICE_STATISTICS];
    const size_t n = 2 * (size_t)channels + (values > 0);
    if (q->evaluates) return all;
    give_statistics(q, all + sizeof(double) * n * (size_t)ga_nccl_rank(m->nccl), first, second, channels, values);
    order(q, m->forked, q->stream, m->reducing); /* all exchanges have one order */
    if (q->code == 0) q->code = ga_nccl_gather_equal(m->nccl, m->reducing, all, n, GA_F64, q->e);
    order(q, m->joined, m->reducing, q->stream);
    return all;
}

/* Makes the gathers of a micro-step once. */
static int connect_statistics(model *m, ga_err *e) {
    static const size_t SIZES[] = {$sizes};
    const ga_address all = m->device_memory[DEVICE_STATISTICS];
    GA_TRY(ga_device_fill(m->device, m->stream, all, 0, m->statistics_bytes, e));
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        GA_TRY(ga_nccl_gather_equal(m->nccl, m->stream, all, SIZES[i], GA_F64, e));
    return 0;
}

//@ connect(sharded, grouped, statistics)
/* Makes each collective of a cycle once, on zeros where the parameters will be: NCCL connects the ranks at
 * the first one of a kind and size, and could not in a capture. */
static int connect_ranks(model *m, ga_err *e) {
    queue q = queue_of(m, e);
    GA_TRY(ga_device_fill(m->device, m->stream, m->device_w, 0, sizeof(real) * FLAT, e));
    for (int i = 0; i < m->division.count; i++) {
        const ga_bucket *b = &m->division.buckets[i];
        const ga_address values = m->device_w + sizeof(real) * (size_t)b->offset;
//% if grouped then
        const ga_exchange sum = {.kind = b->kind, .n = b->n, .cuts = ga_division_cuts(&m->division, i),
                                 .type = REAL, .wire = REAL, .group = m->division.groups[i]};
//% else
        const ga_exchange sum = {.kind = b->kind, .n = b->n, .cuts = ga_division_cuts(&m->division, i),
                                 .type = REAL, .wire = REAL};
//% end
        GA_TRY(ga_nccl_exchange(m->nccl, m->stream, values, &sum, e));
    }
//% if sharded then
    parameters_gather(&q, m);
//% end
//% if statistics then
    GA_TRY(connect_statistics(m, e));
//% end
    return q.code < 0 ? q.code : ga_nccl_sync(m->nccl, m->stream, e);
}

//@ connect_parts(collected, statistics)
/* Makes each collective of a cycle once, on zeros: NCCL connects the ranks at the first one of a kind and size, and
 * could not in a capture. */
static int connect_ranks(model *m, ga_err *e) {
    for (int i = 0; i < m->division.count; i++) {
        const ga_bucket *b = &m->division.buckets[i];
        ga_exchange all = {.kind = b->kind, .n = b->n, .cuts = ga_division_cuts(&m->division, i), .type = REAL,
                           .wire = REAL};
//% if collected then
        const bool scatters = b->kind == GA_REDUCE_SCATTER; /* else it is what the cycle has collected */
        const ga_address sums = scatters ? m->windows + sizeof(real) * (size_t)WINDOWS[i] : m->device_collected;
//% else
        const ga_address sums = m->windows + sizeof(real) * (size_t)WINDOWS[i];
//% end
        GA_TRY(ga_device_fill(m->device, m->stream, sums, 0, sizeof(real) * (size_t)b->n, e));
        GA_TRY(ga_nccl_exchange(m->nccl, m->stream, sums, &all, e));
//% if collected then
        if (!scatters) continue;
//% end
        const ga_address values = m->chunks + sizeof(real) * (size_t)CHUNKS[i];
        all.kind = GA_ALL_GATHER;
        GA_TRY(ga_device_fill(m->device, m->stream, values, 0, sizeof(real) * (size_t)b->n, e));
        GA_TRY(ga_nccl_exchange(m->nccl, m->stream, values, &all, e));
    }
//% if statistics then
    GA_TRY(connect_statistics(m, e));
//% end
    return ga_nccl_sync(m->nccl, m->stream, e);
}

//@ small_sum(split)
static void sum_small(queue *q, model *m, int from, int end, int largest) {
    const ga_address small = m->block + offsetof(step, small) + (size_t)from * sizeof(double);
    if (q->code == 0)
        q->code = ga_nccl_small(m->nccl, q->stream, small, (size_t)(end - from), (size_t)largest, q->e);
}

//% if split then
/* The small sum over the ranks: loss, weight, rows, requests to stop or save. */
//% else
/* The one small sum over the ranks: loss, weight, rows, requests to stop or save, the norm of the gradient. */
//% end
static void small_sum(queue *q, model *m) {
    const ga_address stop = m->block + offsetof(step, small) + SMALL_STOP * sizeof(double);
    small_values(q, m->block);
    if (q->code == 0)
        q->code = ga_device_send(q->device, q->stream, stop, &m->transfer->stop, sizeof(double), q->e);
//% if split then
    sum_small(q, m, 0, SMALL_NONFINITE, 0);
}

/* The norm of the changed gradient: each rank has measured its own part. */
static void norm_sum(queue *q, model *m) {
    own_norms(q, m->block, m->device_partials);
    sum_small(q, m, SMALL_NONFINITE, SMALL, LARGEST);
}
//% else
    own_norms(q, m->block, m->device_partials);
    sum_small(q, m, 0, SMALL, LARGEST);
}
//% end
