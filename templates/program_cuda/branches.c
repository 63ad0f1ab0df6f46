// branches: calls that run beside others, on a second stream (passes/branch.lua).

//@ branch(joins)
static void change_streams(queue *q) {
    const ga_cuda_stream other = q->beside;
    q->beside = q->stream;
    q->stream = other;
}

/* Calls between branch_begin and branch_end run behind all calls before them, and beside those that
 * follow, until a join waits for them. Branches run one behind the other. */
static void branch_begin(queue *q) {
    order(q, q->parted, q->stream, q->beside);
    change_streams(q);
}

static void branch_end(queue *q) { change_streams(q); }

//% if joins then
/* Marks the end of a branch for which a join waits. */
static void branch_mark(queue *q, int branch) {
    if (q->code == 0) q->code = ga_device_record(q->device, q->ended[branch], q->stream, q->e);
    q->apart[branch] = true;
}

static void branch_join(queue *q, int branch) {
    if (q->apart[branch] && q->code == 0)
        q->code = ga_device_wait(q->device, q->stream, q->ended[branch], q->e);
    q->apart[branch] = false;
}

//% end
/* Waits for all branches. */
static void branches_join(queue *q) {
    order(q, q->parted, q->beside, q->stream);
//% if joins then
    memset(q->apart, 0, sizeof q->apart);
//% end
}
