// pool: windows of planes brought to one value each. A plane is one worker's from start to end.

//@ maxpool2d(fn, params, source, type, first, x, value, planes, height, width, rows, columns, top, bottom, left, right)
/* $fn: the greatest value in each window, and where the first is: $planes planes of ($height, $width) to ($rows, $columns)
 * $source */
static void $fn($params) {
    enum { PLANES = $planes, H = $height, W = $width, P = $rows, Q = $columns, TILE = 1 + 4096 / (H * W) };
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (size_t i = (size_t)from * P * Q; i < (size_t)to * P * Q; i++) {
            const $type *plane = x + i / (P * Q) * H * W;
            const int p = (int)(i / Q % P), q = (int)(i % Q), left = $left, right = $right, bottom = $bottom;
            int h = $top, at = h * W + left;
            real best = $first;
            for (; h < bottom; h++) {
                for (int v = left; v < right; v++) {
                    const real value = $x;
                    const bool better = !(value <= best) && best == best; /* the first NaN stays */
                    best = better ? value : best;
                    at = better ? h * W + v : at;
                }
            }
            y[i] = $value;
            place[i] = at;
        }
    }
}

//@ maxpool2d_dx(fn, params, source, half, type, d, planes, height, width, rows, columns, adds)
/* $fn: dy where the greatest values were, $planes planes of ($rows, $columns) to ($height, $width)
 * $source */
static void $fn($params) {
    enum { PLANES = $planes, H = $height, W = $width, P = $rows, Q = $columns };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
//% if half then
        real plane[H * W];
//% else
        real *plane = y + (size_t)t.index * H * W;
//% end
        const $type *d = dy + (size_t)t.index * P * Q;
        const int32_t *at = place + (size_t)t.index * P * Q;
//% if adds and half then
        for (int i = 0; !add && i < H * W; i++) plane[i] = 0;
        if (add) widen_row(plane, y + (size_t)t.index * H * W, H * W);
//% elseif adds then
        for (int i = 0; !add && i < H * W; i++) plane[i] = 0;
//% else
        for (int i = 0; i < H * W; i++) plane[i] = 0;
//% end
        for (int i = 0; i < P * Q; i++) plane[at[i]] += $d;
//% if half then
        narrow_row(y + (size_t)t.index * H * W, plane, H * W);
//% end
    }
}

//@ avgpool2d(fn, params, source, type, x, value, planes, height, width, rows, columns, top, bottom, left, right, window)
/* $fn: the average of each window, $planes planes of ($height, $width) to ($rows, $columns)
 * $source */
static void $fn($params) {
    enum { PLANES = $planes, H = $height, W = $width, P = $rows, Q = $columns, WINDOW = $window, TILE = 1 + 4096 / (H * W) };
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (size_t i = (size_t)from * P * Q; i < (size_t)to * P * Q; i++) {
            const $type *plane = x + i / (P * Q) * H * W;
            const int p = (int)(i / Q % P), q = (int)(i % Q);
            const int top = $top, bottom = $bottom, left = $left, right = $right;
            real sum = 0;
            for (int h = top; h < bottom; h++)
                for (int v = left; v < right; v++) sum += $x;
            y[i] = $value;
        }
    }
}

//@ avgpool2d_dx(fn, params, source, half, d, planes, height, width, rows, columns, top, bottom, left, right, window, count, adds)
/* $fn: dy spread over its windows, $planes planes of ($rows, $columns) to ($height, $width)
 * $source */
static void $fn($params) {
    enum { PLANES = $planes, H = $height, W = $width, P = $rows, Q = $columns, WINDOW = $window };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
//% if half then
        real plane[H * W];
//% else
        real *plane = y + (size_t)t.index * H * W;
//% end
//% if adds and half then
        for (int i = 0; !add && i < H * W; i++) plane[i] = 0;
        if (add) widen_row(plane, y + (size_t)t.index * H * W, H * W);
//% elseif adds then
        for (int i = 0; !add && i < H * W; i++) plane[i] = 0;
//% else
        for (int i = 0; i < H * W; i++) plane[i] = 0;
//% end
        for (int i = 0; i < P * Q; i++) {
            const int p = i / Q, q = i % Q, top = $top, bottom = $bottom, left = $left, right = $right;
            const real value = $d / ($count);
            for (int h = top; h < bottom; h++)
                for (int v = left; v < right; v++) plane[h * W + v] += value;
        }
//% if half then
        narrow_row(y + (size_t)t.index * H * W, plane, H * W);
//% end
    }
}

//@ pad2d(fn, params, source, planes, height, width, rows, columns, top, left, value)
/* $fn: $planes planes of ($height, $width) inside ($rows, $columns)
 * $source */
static void $fn($params) {
    enum { PLANES = $planes, H = $height, W = $width, P = $rows, Q = $columns, TOP = $top, LEFT = $left };
    for (ga_tiles t = ga_tiles_begin(w, PLANES); ga_tile_next(&t);) {
        real *out = y + (size_t)t.index * P * Q;
        for (int i = 0; i < P * Q; i++) out[i] = $value;
        for (int h = 0; h < H; h++)
            for (int v = 0; v < W; v++) out[(h + TOP) * Q + v + LEFT] = x[((size_t)t.index * H + h) * W + v];
    }
}
