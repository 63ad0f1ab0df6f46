// pool: one value for each window of a plane; the gradient of a place is the sum over the windows that see it.

//@ maxpool2d(fn, params, source, threads, shape, window, type, first, x, value)
/* $fn: the greatest value in each window, and the place of the first such:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$(shape.planes) * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * H * W;
        const int p = (int)(i / Q % P), q = (int)(i % Q);
        const int bottom = $(window.bottom), left = $(window.left), right = $(window.right);
        int h = $(window.top), at = h * W + left;
        real best = $first;
        for (; h < bottom; h++) {
            for (int v = left; v < right; v++) {
                const real value = $x;
                const bool better = !(value <= best) && best == best;  // the first NaN stays
                best = better ? value : best;
                at = better ? h * W + v : at;
            }
        }
        y[i] = $value;
        place[i] = at;
    }
}

//@ maxpool2d_dx(fn, params, source, threads, shape, seen, d, store)
/* $fn: dy added where the greatest value of its window was, 0 elsewhere:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
GA_KERNEL($threads, 4) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns) };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$(shape.planes) * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $(seen.end_row), end_column = $(seen.end_column);
        const ga_int64 first = i / (H * W) * P * Q;
        real value = 0;
        for (int p = $(seen.first_row); p < end_row; p++)
            for (int q = $(seen.first_column); q < end_column; q++)
                if (place[first + p * Q + q] == h * W + v) value += $d;
        $store
    }
}

//@ avgpool2d(fn, params, source, threads, shape, window, type, x, value)
/* $fn: the average of each window:
 * $(shape.planes) planes of ($(shape.height), $(shape.width)) to ($(shape.rows), $(shape.columns))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WINDOW = $(window.size) };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$(shape.planes) * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * H * W;
        const int p = (int)(i / Q % P), q = (int)(i % Q);
        const int top = $(window.top), bottom = $(window.bottom), left = $(window.left), right = $(window.right);
        real sum = 0;
        for (int h = top; h < bottom; h++)
            for (int v = left; v < right; v++) sum += $x;
        y[i] = $value;
    }
}

//@ avgpool2d_dx(fn, params, source, threads, shape, window, seen, type, d, store)
/* $fn: dy spread evenly over its window:
 * $(shape.planes) planes of ($(shape.rows), $(shape.columns)) to ($(shape.height), $(shape.width))
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $(shape.height), W = $(shape.width), P = $(shape.rows), Q = $(shape.columns), WINDOW = $(window.size) };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$(shape.planes) * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $(seen.end_row), end_column = $(seen.end_column);
        const $type *d = dy + i / (H * W) * P * Q;
        real value = 0;
        for (int p = $(seen.first_row); p < end_row; p++) {
            for (int q = $(seen.first_column); q < end_column; q++) {
//% if window.count.kind == "block" then
                const int top = $(window.top), bottom = $(window.bottom);
                const int left = $(window.left), right = $(window.right);
//% end
                value += $d / ($(window.count));
            }
        }
        $store
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
