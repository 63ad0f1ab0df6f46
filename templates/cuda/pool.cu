// pool: one value for each window of a plane; the gradient of a place is the sum over the windows that see it. A thread
// has WIDE neighbouring channels of a place, 1 or an octet.

//@ maxpool2d(fn, params, source, threads, wide, shape, window, type)
/* $fn: the greatest value in each window, and the place of the first such:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WIDE = $wide };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)($(shape.planes) / WIDE) * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * (H * W * WIDE);
        const int p = (int)(i / Q % P), q = (int)(i % Q);
        const int top = $(window.top), bottom = $(window.bottom), left = $(window.left), right = $(window.right);
        ga_few<$type, WIDE> best = ga_read<WIDE>(plane + (top * W + left) * WIDE);
        ga_few<int, WIDE> at;
#pragma unroll
        for (int e = 0; e < WIDE; e++) at.at[e] = top * W + left;
        for (int h = top; h < bottom; h++) {
            for (int v = left; v < right; v++) {
                const auto some = ga_read<WIDE>(plane + (h * W + v) * WIDE);
#pragma unroll
                for (int e = 0; e < WIDE; e++) {
                    const real value = ga_get(some.at[e]), most = ga_get(best.at[e]);
                    const bool better = !(value <= most) && most == most;  // the first NaN stays
                    best.at[e] = better ? some.at[e] : best.at[e];
                    at.at[e] = better ? h * W + v : at.at[e];
                }
            }
        }
        ga_write(y + i * WIDE, best);
        ga_write(place + i * WIDE, at);
    }
}

//@ maxpool2d_dx(fn, params, source, threads, wide, shape, seen, out, adds, store)
/* $fn: dy added where the greatest value of its window was, 0 elsewhere:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
GA_KERNEL($threads, 4) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WIDE = $wide };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)($(shape.planes) / WIDE) * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $(seen.end_row), end_column = $(seen.end_column);
        const ga_int64 first = i / (H * W) * P * Q;
        real sum[WIDE] = {};
        for (int p = $(seen.first_row); p < end_row; p++) {
            for (int q = $(seen.first_column); q < end_column; q++) {
                const auto at = ga_read<WIDE>(place + (first + p * Q + q) * WIDE);
                const auto slopes = ga_read<WIDE>(dy + (first + p * Q + q) * WIDE);
#pragma unroll
                for (int e = 0; e < WIDE; e++)
                    if (at.at[e] == h * W + v) sum[e] += ga_get(slopes.at[e]);
            }
        }
        $(stored { out = out, adds = adds, store = store })
    }
}

//@ stored(out, adds, store)
ga_few<$out, WIDE> to;
//% if adds then
if (add) to = ga_read<WIDE>(y + i * WIDE);
//% end
#pragma unroll
for (int e = 0; e < WIDE; e++) {
    const real value = sum[e];
    $store
}
ga_write(y + i * WIDE, to);

//@ avgpool2d(fn, params, source, threads, wide, shape, window, type, out)
/* $fn: the average of each window:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WINDOW = $(window.size) };
    enum { WIDE = $wide };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)($(shape.planes) / WIDE) * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * (H * W * WIDE);
        const int p = (int)(i / Q % P), q = (int)(i % Q);
        const int top = $(window.top), bottom = $(window.bottom), left = $(window.left), right = $(window.right);
        real sum[WIDE] = {};
        for (int h = top; h < bottom; h++) {
            for (int v = left; v < right; v++) {
                const auto some = ga_read<WIDE>(plane + (h * W + v) * WIDE);
#pragma unroll
                for (int e = 0; e < WIDE; e++) sum[e] += ga_get(some.at[e]);
            }
        }
        ga_few<$out, WIDE> to;
#pragma unroll
        for (int e = 0; e < WIDE; e++) ga_put(to.at[e], sum[e] / ($(window.count)));
        ga_write(y + i * WIDE, to);
    }
}

//@ avgpool2d_dx(fn, params, source, threads, wide, shape, window, seen, type, out, adds, store)
/* $fn: dy spread evenly over its window:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WINDOW = $(window.size) };
    enum { WIDE = $wide };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)($(shape.planes) / WIDE) * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $(seen.end_row), end_column = $(seen.end_column);
        const $type *d = dy + i / (H * W) * (P * Q * WIDE);
        real sum[WIDE] = {};
        for (int p = $(seen.first_row); p < end_row; p++) {
            for (int q = $(seen.first_column); q < end_column; q++) {
//% if window.count.kind == "block" then
                const int top = $(window.top), bottom = $(window.bottom);
                const int left = $(window.left), right = $(window.right);
//% end
                const auto slopes = ga_read<WIDE>(d + (p * Q + q) * WIDE);
#pragma unroll
                for (int e = 0; e < WIDE; e++) sum[e] += ga_get(slopes.at[e]) / ($(window.count));
            }
        }
        $(stored { out = out, adds = adds, store = store })
    }
}

//@ pad2d(fn, params, source, threads, shape, top, left, value)
/* $fn: $(shape.planes) planes of ($(shape.height), $(shape.width)) inside ($(shape.rows), $(shape.columns))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), TOP = $top, LEFT = $left };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$(shape.planes) * P * Q; i += ga_thread_count()) {
        const int h = (int)(i / Q % P) - TOP, v = (int)(i % Q) - LEFT;
        const bool inside = h >= 0 && h < H && v >= 0 && v < W;
        y[i] = inside ? x[(i / (P * Q) * H + h) * W + v] : $value;
    }
}
