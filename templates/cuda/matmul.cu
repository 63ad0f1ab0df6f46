// matmul: C(i, j) = sum over k of A(i, k) B(k, j). A block computes a tile of C from slices of A and
// B in shared memory; the sum over k runs upwards, one fused multiply-add per step, or 16 terms on tensor cores.

//@ linear(fn, params, source, threads, shape, tile, a, b, value, store, sums, drops)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N))
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K) };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), DEPTH = $(tile.depth) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DOWN_STEP = ROWS / TALL, ACROSS_STEP = COLUMNS / WIDE };
    enum { ACROSS = (N + COLUMNS - 1) / COLUMNS, THREADS = $threads, A_FEW = $(a.few), B_FEW = $(b.few) };
    __shared__ real a_tile[DEPTH][ROWS + 1], b_tile[DEPTH][COLUMNS + 1];
    const int i0 = blockIdx.x / ACROSS * ROWS, j0 = blockIdx.x % ACROSS * COLUMNS;
    const int down = threadIdx.x / ACROSS_STEP, across = threadIdx.x % ACROSS_STEP;
    real sum[TALL][WIDE] = {};
//% if sums then
    real total = 0; /* of the column of $(sums.array) that this thread sums, in the blocks of the first tiles */
    const bool has_sums = $(sums.across) == 0 && threadIdx.x < $(sums.extent);
//% end
    for (int k0 = 0; k0 < K; k0 += DEPTH) {
        for (int s = threadIdx.x * A_FEW; s < ROWS * DEPTH; s += THREADS * A_FEW) {
            const int row = $(a.i), deep = $(a.k), i = i0 + row, k = k0 + deep;
            ga_few<$(tile.type), A_FEW> some = {};
            if (i < M && k < K) some = ga_read<A_FEW>(a + $(a.at));
#pragma unroll
            for (int e = 0; e < A_FEW; e++) $(a.to) = $(a.value);
        }
        for (int s = threadIdx.x * B_FEW; s < COLUMNS * DEPTH; s += THREADS * B_FEW) {
            const int deep = $(b.k), column = $(b.j), k = k0 + deep, j = j0 + column;
            ga_few<$(tile.type), B_FEW> some = {};
            if (k < K && j < N) some = ga_read<B_FEW>(b + $(b.at));
#pragma unroll
            for (int e = 0; e < B_FEW; e++) $(b.to) = $(b.value);
        }
        __syncthreads();
//% if sums then
        for (int k = 0; k < DEPTH && has_sums; k++) total += $(sums.array)_tile[k][threadIdx.x];
//% end
        ga_tile_product(sum, a_tile, b_tile, down, across);
        __syncthreads();
    }
    for (int u = 0; u < TALL; u++) {
        for (int v = 0; v < WIDE; v++) {
            const int i = i0 + down + u * DOWN_STEP, j = j0 + across + v * ACROSS_STEP;
            if (i >= M || j >= N) continue;
            const ga_int64 at = (ga_int64)i * N + j;
//% if drops then
            const ga_draws z = ga_draws_of(micro, ga_rng_stream($(drops.name)), iteration, i / $(drops.rows), $(drops.p));
            real value = $value;
            value = ga_dropped(z, i % $(drops.rows) * N + j, $(drops.value));
//% else
            const real value = $value;
//% end
            $store
        }
    }
//% if sums then
    const int n = $(sums.first) + threadIdx.x;
    if (has_sums && n < $(sums.count)) $(sums.store)
//% end
}

//@ tensor(fn, params, source, threads, tile, a, b, c, behind, sums, of)
/* $fn: a product on tensor cores
 * $source */
GA_KERNEL($threads$(tile.at_least)) $fn($params) {
    const bool A_TURNED = $(a.turned), B_TURNED = $(b.turned), ALL = $(c.all);
    extern __shared__ __align__(128) ga_byte ring[];
//% if c.drops then
    const ga_drops drops = ga_drops_of(micro, $(c.drops.p));
//% end
    ga_tensor_product<$(tile.rows), $(tile.columns), $(tile.down), $(tile.across), $(tile.deep), A_TURNED, $(a.lies),
                      B_TURNED, $(b.lies), $of>(
        ring, a, b, size,
//% if sums then
        [&](int n, const ga_few<float, 4> &total) {
            $(totals { c = c, sums = sums })
        },
//% else
        [](int, const ga_few<float, 4> &) {},
//% end
        [&](int row, int column, float (&sums)[8]) {
            $(row { c = c, behind = behind, beside = false })
        });
}

//@ row(c, behind, beside)
//% if behind then
enum { FEW = 8 };
//% end
const ga_int64 first = (ga_int64)row * size.c_row + column;
//% if beside then
const auto &[$(beside.names)] = beside;
//% end
//% if c.bias then
//%   if c.bias == "where" then
if (bias) ga_add8<ALL>(sums, bias + column, size.N - column);
//%   else
ga_add8<ALL>(sums, bias + column, size.N - column);
//%   end
//% end
//% if c.drops then
const ga_draws z = ga_draws_at(drops, ga_rng_stream($(c.drops.name)), iteration, row / $(c.drops.rows));
const ga_int64 drawn = row % $(c.drops.rows) * size.N + column;
#pragma unroll
for (int k = 0; k < 8; k++) {
    const real value = sums[k];
    sums[k] = ga_dropped(z, drawn + k, $(c.drops.value));
}
//% end
//% if behind then
//% if not beside then
$(behind.reads)
//% end
//% if behind.both then
ga_put8<ALL>(c + first, sums, size.N - column);
//% end
#pragma unroll
for (int k = 0; k < FEW && (ALL || column + k < size.N); k++) {
    const real value = sums[k];
    $(behind.lines)
}
ga_put8<ALL>($(behind.to) + first, sums, size.N - column);
//% else
//% if c.with_1 then
if (with_1) {
#pragma unroll
    for (int k = 0; k < 8; k++) sums[k] = ga_rounded(sums[k]);
//%   if beside then
    ga_add8<ALL>(sums, of_with_1.at, size.N - column);
//%   else
    ga_add8<ALL>(sums, with_1 + first, size.N - column);
//%   end
}
//% end
//% if c.add then
if (add) ga_add8<ALL>(sums, c + first, size.N - column);
//% end
ga_put8<ALL>(c + first, sums, size.N - column);
//% end

//@ calls(fn, params, beside, drops)
//% if beside then
[&](int row, int column) { return $(fn)_read($(params.names), row, column); },
[&](int row, int column, float (&sums)[8], const $(fn)_beside &beside) {
//% else
[](int, int) { return ga_nothing(); },
[&](int row, int column, float (&sums)[8], ga_nothing) {
//% end
//% if beside and drops then
    $(fn)_row($(params.names), row, column, sums, beside, drops);
//% elseif beside then
    $(fn)_row($(params.names), row, column, sums, beside);
//% elseif drops then
    $(fn)_row($(params.names), row, column, sums, drops);
//% else
    $(fn)_row($(params.names), row, column, sums);
//% end
});

//@ totals(c, sums)
if (n >= $(sums.count)) return;
ga_few<real, 4> to;
//% if c.add then
if (add) to = ga_read<4>(bias + n$(sums.rest));
//% end
#pragma unroll
for (int e = 0; e < 4; e++) $(sums.store)
ga_write(bias + n, to$(sums.rest));

//@ boxes(fn, params, tile, wide, a, b, c, behind, has_terms, has_parts, beside, bias)
/* $fn: a product by boxes
//% if beside then
 * Operands beside the sums of eight neighbours of its result, their reading, the neighbours; the tiles that blocks have
 * whole, those that came in parts. */
struct $(fn)_beside {
//% for _, one in ipairs(beside.list) do
    $(one.type) $(one.name);
//% end
};

GA_DEVICE $(fn)_beside $(fn)_read($(params.read)) {
    const ga_int64 first = (ga_int64)row * size.c_row + column;
    $(fn)_beside beside;
//% for _, one in ipairs(beside.list) do
//%   if one.condition then
    if ($(one.condition)) beside.$(one.name) = $(one.value);
//%   else
    beside.$(one.name) = $(one.value);
//%   end
//% end
    return beside;
}

//% else
 * Eight neighbours of its result, the tiles that blocks have whole, those that came in parts. */
//% end
GA_DEVICE void $(fn)_row($(params.row)) {
    const bool ALL = true;
    $(row { c = c, behind = behind, beside = beside })
}

GA_KERNEL(384, 1) __cluster_dims__($(tile.cluster)) $(fn)_boxes($(params.boxes)) {
    const bool A_TURNED = $(a.turned), B_TURNED = $(b.turned);
    extern __shared__ __align__(128) ga_byte memory[];
//% if c.drops then
    const ga_drops drops = ga_drops_of(micro, $(c.drops.p));
//% end
    ga_boxes_product<$(tile.cluster), $wide, A_TURNED, B_TURNED, $has_terms>(
        memory + (-ga_shared(memory) & 1023), a_boxes, b_boxes, size, $bias, parts,
        $(calls { fn = fn, params = params, beside = beside, drops = c.drops })
}
//% if has_parts then

GA_KERNEL(256, 4) $(fn)_parts($(params.parts)) { /* NVRTC would spill a register to have five blocks */
//%   if c.drops then
    const ga_drops drops = ga_drops_of(micro, $(c.drops.p));
//%   end
    ga_parts_sum<$(tile.cluster), $wide>(
        size, parts,
        $(calls { fn = fn, params = params, beside = beside, drops = c.drops })
}
//% end

//@ boxes_sums(fn, params, tile, c, sums, terms)
//% if terms then
/* $fn: the sums of $(sums.array) over the terms, from those beside parts of a product. */
GA_KERNEL(256) $(fn)_totals($(params.totals)) {
    ga_run_total<$(tile.cluster), 0>(size, parts, [&](int n, const ga_few<float, 4> &total) {
        $(totals { c = c, sums = sums })
    });
}
//% else
/* $fn: the sums of $(sums.array) over the terms, beside a product: in parts of the terms, then those of the parts. */
GA_KERNEL(256) $(fn)_sums($(params.sums)) {
    __shared__ float teams[GA_TERM_TEAMS][64];
    ga_terms_sum(teams, parts, $(sums.array), size.$(sums.array)_row, $(sums.count), size.K, size.term_parts);
}

GA_KERNEL(256) $(fn)_totals($(params.totals)) {
    ga_terms_total(parts, $(sums.count), size.term_parts, [&](int n, const ga_few<float, 4> &total) {
        $(totals { c = c, sums = sums })
    });
}
//% end
