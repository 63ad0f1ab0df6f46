// pool: windows of planes brought to one value each; gradients look for the windows that see a place.

//@ maxpool2d(fn, params, source, threads, type, first, x, value, planes, height, width, rows, columns, top, bottom, left, right)
/* $fn: the greatest value in each window, and where the first is: $planes planes of ($height, $width) to ($rows, $columns)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $height, W = $width, P = $rows, Q = $columns };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$planes * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * H * W;
        const int p = (int)(i / Q % P), q = (int)(i % Q), left = $left, right = $right, bottom = $bottom;
        int h = $top, at = h * W + left;
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

//@ maxpool2d_dx(fn, params, source, threads, d, planes, height, width, rows, columns, first_row, end_row, first_column, end_column, store)
/* $fn: dy where the greatest values were, $planes planes of ($rows, $columns) to ($height, $width)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $height, W = $width, P = $rows, Q = $columns };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$planes * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $end_row, end_column = $end_column;
        const ga_int64 first = i / (H * W) * P * Q;
        real value = 0;
        for (int p = $first_row; p < end_row; p++)
            for (int q = $first_column; q < end_column; q++)
                if (place[first + p * Q + q] == h * W + v) value += $d;
        $store
    }
}

//@ avgpool2d(fn, params, source, threads, type, x, value, planes, height, width, rows, columns, top, bottom, left, right, window)
/* $fn: the average of each window, $planes planes of ($height, $width) to ($rows, $columns)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $height, W = $width, P = $rows, Q = $columns, WINDOW = $window };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$planes * P * Q; i += ga_thread_count()) {
        const $type *plane = x + i / (P * Q) * H * W;
        const int p = (int)(i / Q % P), q = (int)(i % Q);
        const int top = $top, bottom = $bottom, left = $left, right = $right;
        real sum = 0;
        for (int h = top; h < bottom; h++)
            for (int v = left; v < right; v++) sum += $x;
        y[i] = $value;
    }
}

//@ avgpool2d_dx(fn, params, source, threads, type, d, planes, height, width, rows, columns, top, bottom, left, right, window, count, first_row, end_row, first_column, end_column, store)
/* $fn: dy spread over its windows, $planes planes of ($rows, $columns) to ($height, $width)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $height, W = $width, P = $rows, Q = $columns, WINDOW = $window };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$planes * H * W; i += ga_thread_count()) {
        const int h = (int)(i / W % H), v = (int)(i % W), end_row = $end_row, end_column = $end_column;
        const $type *d = dy + i / (H * W) * P * Q;
        real value = 0;
        for (int p = $first_row; p < end_row; p++) {
            for (int q = $first_column; q < end_column; q++) {
//% if count.kind == "block" then
                const int top = $top, bottom = $bottom, left = $left, right = $right;
//% end
                value += $d / ($count);
            }
        }
        $store
    }
}

//@ pad2d(fn, params, source, threads, planes, height, width, rows, columns, top, left, value)
/* $fn: $planes planes of ($height, $width) inside ($rows, $columns)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { H = $height, W = $width, P = $rows, Q = $columns, TOP = $top, LEFT = $left };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$planes * P * Q; i += ga_thread_count()) {
        const int h = (int)(i / Q % P) - TOP, v = (int)(i % Q) - LEFT;
        const bool inside = h >= 0 && h < H && v >= 0 && v < W;
        y[i] = inside ? x[(i / (P * Q) * H + h) * W + v] : $value;
    }
}
