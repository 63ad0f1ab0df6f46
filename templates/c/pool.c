// pool: one value for each window of a plane. One worker computes a plane from start to end.

//@ maxpool2d(fn, params, source, shape, window, half, value)
/* Column c of row h of the windows of one row of results; a window with fewer columns sees its last one again. */
static __attribute__((noinline)) void $(fn)_see(real *restrict best, int *restrict at, const real *plane, int h,
                                                int c) {
    enum { W = $(shape.width), Q = $(shape.columns) };
    for (int q = 0; q < Q; q++) {
        const int left = $(window.left), last = $(window.right) - 1;
        const int next = h * W + (left + c < last ? left + c : last), before = at[q];
        const real value = plane[next], old = best[q];
        const bool worse = (value <= old) | (old != old); /* the first NaN stays */
        best[q] = worse ? old : value;
        at[q] = worse ? before : next;
    }
}

/* $fn: the greatest value in each window, and the place of the first such:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
static void $fn($params) {
    enum { PLANES = $(shape.planes), H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    enum { WIDE = $(window.wide), TILE = 1 + 4096 / (H * W) };
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (size_t i = (size_t)from * P; i < (size_t)to * P; i++) {
            const int p = (int)(i % P), top = $(window.top), bottom = $(window.bottom);
            real best[Q];
            int at[Q];
//% if half then
            real plane[H * W];
            widen_row(plane + top * W, x + (i / P * H + top) * W, (bottom - top) * W);
//% else
            const real *plane = x + i / P * H * W;
//% end
            for (int q = 0; q < Q; q++) {
                at[q] = top * W + $(window.left);
                best[q] = plane[at[q]];
            }
            for (int h = top; h < bottom; h++)
                for (int c = 0; c < WIDE; c++) $(fn)_see(best, at, plane, h, c);
            for (int q = 0; q < Q; q++) y[i * Q + q] = $value;
            for (int q = 0; q < Q; q++) place[i * Q + q] = at[q];
        }
    }
}

//@ maxpool2d_dx(fn, params, source, shape, half, type, d, adds)
/* $fn: dy added where the greatest value of its window was, 0 elsewhere:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
static void $fn($params) {
    enum { PLANES = $(shape.planes), H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
//% if half then
        real plane[H * W];
//% else
        real *plane = y + (size_t)t.index * H * W;
//% end
        const $type *d = dy + (size_t)t.index * P * Q;
        const int32_t *at = place + (size_t)t.index * P * Q;
//% if adds and half then
        if (add) widen_row(plane, y + (size_t)t.index * H * W, H * W);
        else for (int i = 0; i < H * W; i++) plane[i] = 0;
//% elseif adds then
        if (!add)
            for (int i = 0; i < H * W; i++) plane[i] = 0;
//% else
        for (int i = 0; i < H * W; i++) plane[i] = 0;
//% end
        for (int i = 0; i < P * Q; i++) plane[at[i]] += $d;
//% if half then
        narrow_row(y + (size_t)t.index * H * W, plane, H * W);
//% end
    }
}

//@ avgpool2d(fn, params, source, shape, window, type, x, value)
/* $fn: the average of each window:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
static void $fn($params) {
    enum { PLANES = $(shape.planes), H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    enum { WINDOW = $(window.size), TILE = 1 + 4096 / (H * W) };
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (size_t i = (size_t)from * P * Q; i < (size_t)to * P * Q; i++) {
            const $type *plane = x + i / (P * Q) * H * W;
            const int p = (int)(i / Q % P), q = (int)(i % Q);
            const int top = $(window.top), bottom = $(window.bottom), left = $(window.left), right = $(window.right);
            real sum = 0;
            for (int h = top; h < bottom; h++)
                for (int v = left; v < right; v++) sum += $x;
            y[i] = $value;
        }
    }
}

//@ avgpool2d_dx(fn, params, source, shape, window, half, d, adds)
/* $fn: dy spread evenly over its window:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
static void $fn($params) {
    enum { PLANES = $(shape.planes), H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    enum { WINDOW = $(window.size) };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
//% if half then
        real plane[H * W];
//% else
        real *plane = y + (size_t)t.index * H * W;
//% end
//% if adds and half then
        if (add) widen_row(plane, y + (size_t)t.index * H * W, H * W);
        else for (int i = 0; i < H * W; i++) plane[i] = 0;
//% elseif adds then
        if (!add)
            for (int i = 0; i < H * W; i++) plane[i] = 0;
//% else
        for (int i = 0; i < H * W; i++) plane[i] = 0;
//% end
        for (int i = 0; i < P * Q; i++) {
            const int p = i / Q, q = i % Q;
            const int top = $(window.top), bottom = $(window.bottom), left = $(window.left), right = $(window.right);
            const real value = $d / ($(window.count));
            for (int h = top; h < bottom; h++)
                for (int v = left; v < right; v++) plane[h * W + v] += value;
        }
//% if half then
        narrow_row(y + (size_t)t.index * H * W, plane, H * W);
//% end
    }
}

//@ pad2d(fn, params, source, shape, top, left, value)
/* $fn: $(shape.planes) planes of ($(shape.height), $(shape.width)) inside ($(shape.rows), $(shape.columns))
 * $source */
static void $fn($params) {
    enum { PLANES = $(shape.planes), H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    enum { TOP = $top, LEFT = $left };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
        real *out = y + (size_t)t.index * P * Q;
        for (int i = 0; i < P * Q; i++) out[i] = $value;
        for (int h = 0; h < H; h++)
            for (int v = 0; v < W; v++) out[(h + TOP) * Q + v + LEFT] = x[((size_t)t.index * H + h) * W + v];
    }
}
