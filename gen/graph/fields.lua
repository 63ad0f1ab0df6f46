-- fields: the fields of each record of the graph, and their meaning. verify refuses a field that is not listed
-- here, so a misspelt or undocumented one stops the generator. The pass in brackets sets the field; a field
-- without one is there from the beginning, or never. Sizes and offsets count elements.
local fields = {}

fields.graph = {
    name = "of the program",
    inputs = "tensors of the batch, in the order of the data's fields",
    params = "all parameters, in the order of the model", param_named = "the same by each name that they have in files",
    joints = "joint parameters: { members, value, gradient, flat, views, ... }, fields as those of a parameter (merge)",
    tensors = "all tensors, in the order in which they were made",
    names = "names in use, in lower case -> the last number put behind such a name",
    draws = "names of random ops -> how many there are",
    forward = "body: nodes and regions of a micro-step up to its loss",
    backward = "body: those that make the gradients (autodiff)",
    evaluation = "body: those that follow `forward` where a micro-batch is measured, not trained on",
    boundary = "body: from the gradient of a cycle to the parameters of the next (update)",
    views = "body: copies of weights, made once per update (layout)",
    branches = "how many branches its passes have (branch)", forks = "whether the forward pass has some (branch)",
    joins = "whether nodes wait for one of them (sync)",
    narrows = "whether an update writes copies of the trained parameters in 16 bits, too (layout)",
    iterations = "functions that nodes of `boundary` call: { name, steps, region, x, y, gram, square, ... } (update)",
    layers = "of the model, as applied: { name, kind, shape of the result, count of iterations, parameters of all of "
        .. "them, flops of one forward }",
    decisions = "{ what, choice, why }: what passes decided that a reader of the program may wonder about",
    norm = "{ tiles, ends, groups, others }: room for the sums that the norm is made of, where those of each group "
        .. "end, the runs of each group, whether a rank goes over the parts of the others too (update)",
    partials = "doubles that sums over tiles need (update)",
    loss = "{ rows, target, at, attrs }: the tensor of losses and how they are weighted",
    micro = "tensor: how many rows of the micro-batch are true, where they stand in the cycle",
    seed = "tensor: the gradient of the sum of losses that the backward pass begins with",
    sums = "tensor: the sums of a cycle: losses, weights, hits",
    output = "tensor: what the model gives; nil if there are several, or if it is never whole",
    d_output = "tensor: its gradient (autodiff)",
    ranks = "whether several processes may share a cycle",
    sharded = "what each of them has only a part of: { state =, gradients =, parameters = }, each a boolean",
    residues = "whether sums over the micro-steps keep what they round off (accumulate)",
    half_sums = "whether they are stored in bf16 (accumulate)",
    groups = "map from index to group: parameters with one update rule (optimize)",
    norm_groups = "how many groups have a gradient norm of their own (optimize)",
    state_names = "names of the optimizer's states, m and v for instance (optimize)",
    layer_rates = "with layer_decay: factor of the learning rate by depth + 1 (optimize)",
    real = "f32 or f64: the type of all arithmetic (precision)",
    half = "bf16 or f16: the type that values are stored in, nil if it is `real` (precision)",
    head = "the last layer where it runs by rows: { x, weight, bias, classes, in_out, shape } (head_by_rows)",
    trained_elements = "of the flat space, up to the end of the trained parameters (layout)",
    summed_elements = "up to the end of what has a place beside the gradients: trained or collected (layout)",
    moved_elements = "up to the end of the running statistics that micro-steps move (layout)",
    flat_elements = "of the whole flat space (layout)",
    states = "map from state name to { dense, elements } (layout)",
    segments = "runs of the flat space with one update rule (layout)",
    handlers = "the entries of parallel.handlers where some reduce over groups of ranks (layout)",
    buckets = "runs of the flat space that one collective sums: { offset, n, params, of, partial, collected, region, "
        .. "filled, handler, half, gathered, state_on_host, values_on_host }; of = { first_bucket, bucket_layers }: it "
        .. "has layers of a region; "
        .. "partial: the set of parameters of which it has some layers, where it may begin and end inside of one; "
        .. "collected: it has what a cycle collects; region: of its first parameters; filled: elements of its tensors; "
        .. "handler: that of its parameters; half, gathered: where parameters are divided, whether kernels read some "
        .. "of them in 16 bits, and the elements of `real` that its window takes (layout); state_on_host: the state of "
        .. "a rank's cut lies in host memory; values_on_host: its values and gradient too (placement)",
    placement = "{ policy, kept, pool = { elements, kept } }: where chunks lie between their uses; nil: all on the "
        .. "device, or the target has one memory; kept: the set of buckets that gpu_margin_mem_ratio keeps there; "
        .. "pool: device memory in which the cuts of chunks on the host stay from the forward to the backward pass, "
        .. "kept[bucket] = where; nil: none does (placement)",
    collectives = "{ kind, role = the micro-steps that have it, bucket, n, offset, wire = the type of the parts that "
        .. "travel, sharing = how it is divided over the ranks, window = its place among the windows, or beside = "
        .. "true for what a cycle collects beside them (windows), "
        .. "group = whose lists exchange it, nil: all ranks }, in the order of the buckets (collectives)",
    windows = "{ elements, waits }: memory for the gradients of a micro-step where a rank keeps only the sums of its "
        .. "own cuts; whether buckets wait for memory (windows)",
    chunks = "{ elements, prefetch, orders, places, sent }: memory for parameters that are gathered before use; how "
        .. "many gathers run ahead; numbers of buckets in the order in which each pass needs them; where the window of "
        .. "each bucket begins; sent: whether some of them travel in 16 bits (chunks)",
    roles = "the variants of the backward pass that cycles need (roles)",
    accumulate = "micro-steps of the first cycle (roles)",
    sizes = "all numbers of micro-steps that full cycles have (roles)",
    longest_tail = "most micro-steps of a shorter last cycle; nil: there is none (roles)",
    timeline = "{ name, offset, size, from, to }: blocks of the arena `activations`, and the first and last step that "
        .. "touches each: nodes of forward, evaluation, backward, boundary, from 1 on (memory)",
    one_row = "{ row, position }: bodies of the forward pass for the first row, and for one position of it or false "
        .. "(emit/program/one_row.lua)",
    forward_only = "the graph of a program that only predicts, for one row, or as text why there is none "
        .. "(forward_only); it is lowered where its library is written (emit/program/predictor.lua)",
    arenas = "{ name, elements, state, sharded, filed, dtype, doc }: arrays that the program allocates; sharded: the "
        .. "state of which a rank has only a part; filed: whether its last elements lie in a file (memory)",
    state_file = "{ folder, fraction, arrays, window }: that part of the states named in `arrays` lies in a file, of "
        .. "which `window` elements of each pass through memory at once; nil: all lies in memory (update)",
}

fields.tensor = {
    name = "unique, an identifier of C", shape = "extents, the rows of the batch first",
    dtype = "real, i32, f64 or micro (ga_micro of runtime/data.h); behind precision f32, f64, bf16 or f16 for real",
    kind = "input, value, param, gradient, state, view, scalar, collected, range (of an array) or argument",
    array = "of a range: { kind, name } of its array, for targets to spell (update)",
    at = "path:line of the spec", def = "the node that writes it first",
    scope = "the region it is computed in: one value per iteration",
    param = "whose value, gradient, state or view it is",
    keep_full = "real numbers that are never stored in 16 bits",
    low = "of whole numbers: the least", limit = "of whole numbers: one more than the greatest; nil: not known",
    next_limit = "of targets whose greatest value may be ignored: one more than the others (losses)",
    low_place = "where the data has the least, as text; nil: not known", high_place = "the same for the greatest",
    file_name = "of a field of a safetensors file: its name there, which the target's need not be",
    panels = "of a weight as the panels that products read: { room }, its elements in whole blocks (layout)",
    rowless = "made of parameters alone, so that its first axis is not the rows of the batch",
    carry = "the carry whose argument it is", carried = "the carry whose result it is",
    carry_out = "the carry that it is the last result of", moves = "of the seed: whether it changes while training",
    needs = "whether it depends on a parameter that is trained (autodiff)",
    unused = "whether nobody asked for it (autodiff)",
    cast = "whether it is a copy in another type (precision)",
    parts = "of a joint product's result: { name, path } of the results in whose place it stands (merge)",
    whole_name = "its name before its loop was divided, nil if it was not (split)",
    rounds = "the value of f32 that it is rounded from (precision)",
    octets = "whether it lies by octets: 8 channels of a place side by side (octets)",
    row = "elements from a row of its last axis to the next; nil: those of the row (strides)",
    place = "{ arena, offset, stride, slots, slot, carry, from, to } (memory), with field, distance, rows "
        .. "(emit/program/names.lua)",
}

fields.node = {
    op = "name in the catalog, or `map`: pointwise", ins = "name -> tensor", outs = "name -> Out",
    attrs = "plain values that the op's entry reads", size = "letters of the op's shapes -> extents",
    signature = "the op's operands: { ins, outs, shape, dtype, optional }",
    statements = "of pointwise nodes: { name, expression } each, over the names of ins; the last is the result",
    behind = "of a product: { statements, both }: a pointwise node in its kernel, over `value`, its result, and x_1, "
        .. "..., elements of the inputs with_1, ...; both: its own result is written too (fusion)",
    drops = "of a product: the attributes of a dropout in its kernel, before what stands behind; half: whether its own "
        .. "result has 16 bits (fusion)",
    views = "of pointwise nodes: name of an input -> how its elements are found (graph/view.lua)",
    shapes = "of other nodes: name of an input that has another shape in memory -> the shape that is read (copies)",
    parts = "of a convolution: the parts that its places are cut into",
    octets = "whether the planes that it reads and writes lie by octets (octets)",
    at = "path:line of the spec", path = "the block of the model that it belongs to",
    scope = "the region it stands in", keep_full = "results are never stored in 16 bits",
    why = "the reason of a decision about it, for people",
    run = "the rows it sees: { first, rows, count, whole, scope, why, rest } (head_by_rows)",
    section = "the pass over the batch that it belongs to, if not that of its body (head_by_rows)",
    fence = "whether all workers wait behind it (update)",
    named = "the tensor after which its kernel is named, if not its result (fusion)",
    kernel_name = "what its kernel is called, if not after its result (update)",
    twin = "the node of the backward pass whose kernel it shares (head_by_rows)",
    completes = "buckets that are complete behind it (collectives)",
    completes_layers = "{ first, layers, loop }: behind it those of a loop's layers, the last first (collectives)",
    completes_at = "{ loop, at }: behind it bucket at[l] in iteration l of the loop (collectives)",
    needs = "buckets whose exchange must have ended before it (windows)",
    needs_layers = "as completes_layers: the bucket before the last must have ended before it (windows)",
    needs_at = "{ loop, at }: the exchange of bucket at[l] must have ended before it in iteration l (windows)",
    gathers = "{ pass, loop, at, key }: place at[l] in the order of chunks must be there before it in iteration l, "
        .. "at[0] outside of loops; key: the parameter (chunks)",
    steps = "of a node for one position: tensor -> elements from one position to the next (emit/program/one_row.lua)",
    starts = "of a node for one position: name of an input -> its first element in the tensor (the same)",
    branch = "the number of its branch, if it runs beside the nodes behind it (branch)",
    joins = "the branches that it waits for (sync)", joined = "whether others wait for its branch (sync)",
    barrier = "whether all workers wait before it (sync)", kernel = "its kernel's record (emission)",
}

fields.region = {
    op = "times", name = "dotted path", count = "of iterations", first = "index of the first iteration",
    step = "1 or -1", whole = "layers of the `times`, of which it has a run (split)",
    body = "nodes", carries = "list of Carry", at = "path:line of the spec", path = "the block of the model around it",
    scope = "the region around it", outer_body = "the body around it, while it is built",
    reverse_of = "the forward region whose gradients it computes (autodiff)",
    completes = "buckets that are complete behind it (collectives)",
    needs = "buckets whose exchange must have ended before it (windows)",
    gathers = "as those of a node (chunks)",
    frame = "{ blocks, size }: memory of one iteration (memory)",
    constant = "what its number of iterations is called in C (emit/program/names.lua)",
    range = "of the boundary: the run that it goes over, layer by layer (update)",
    part = "of the boundary: own, others or swept, if it goes over parts of the run (update)",
    barrier = "of a loop over parts: whether all workers wait before it (sync)",
}

fields.out = {
    tensor = "what is written",
    acc = "of gradients: { first, regions }: whether the first micro-step writes or adds (passes/autodiff.lua)",
    run = "the rows of the tensor that are written (head_by_rows)",
    columns = "{ first, width }: what is written of the last axis, if other nodes write the other columns (autodiff)",
}

fields.carry = {
    init = "value before the loop", arg = "value at the beginning of an iteration", result = "value at its end",
    out = "value behind the loop", region = "the loop",
    kept = "whether the value of each iteration is read outside the loop (carries)",
    slots = "values that have memory at one time (carries)",
}

fields.param = {
    name = "as checkpoints have it, %d for the iteration",
    shape = "of one iteration", saved_shape = "in files, if another",
    region = "the `times` it belongs to", count = "of iterations", first = "index of the first iteration",
    at = "path:line of the spec", init = "{ kind, ... }: how it starts", value = "tensor",
    frozen = "not trained (split)", buffer = "saved with the others, but written by nodes",
    collected = "tensor: what a cycle collects for a buffer; it lies where a gradient would",
    gradient = "tensor (autodiff)", used = "whether the loss depends on it (autodiff)",
    handler = "where handlers reduce over groups: the number of its own, from 1 (layout)",
    window = "{ offset, ring = { layers, stride, region }, run }: where its gradients lie among the windows; ring: "
        .. "layers of a bucket that take turns in two windows; run: as that of chunk (windows)",
    chunk = "{ offset, run = { region, offsets, params } }: where its values lie in the memory of chunks; run: where "
        .. "its layers lie, from layer 0 on, nil: as in the flat space (chunks)",
    residue = "tensor: what its sums round off (accumulate)",
    groups = "runs of its layers with one group: { index of the group, from, count } (optimize)",
    layer = "with layer_decay: its depth (optimize)",
    state = "name -> tensor (optimize)", views = "kind -> tensor (layout)",
    flat = "{ offset, stride, n } in the flat space (layout)",
    number = "its place in files, from 1 on: trained ones first, those of a layer by group (layout)",
    kept = "state name -> { offset, stride, n } in that state's array (layout)",
    members = "of a joint parameter: those that lie next to each other in it (merge)",
    joint = "the joint parameter that nodes read in its place (merge)",
    forward_index = "its position among the parameters of its layer (layout)",
}

return fields
