// norm: layernorm and rmsnorm, rows normalised. One worker computes a row from start to end.

//@ layernorm(fn, params, source, rows, C, eps, sqrt, shift, x_half, y_half)
//% if shift.text ~= "" then
/* $fn: (x - mean) rstd weight + bias for $rows rows of $C
//% else
/* $fn: (x - mean) rstd weight for $rows rows of $C
//% end
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
//% if x_half then
            real row[C];
            widen_row(row, x + (size_t)i * C, C);
//% else
            const real *row = x + (size_t)i * C;
//% end
//% if y_half then
            real out[C];
//% else
            real *out = y + (size_t)i * C;
//% end
            const real middle = row_sum(row, C) / C;
            for (int c = 0; c < C; c++) out[c] = row[c] - middle;
            const real factor = 1 / $sqrt(row_dot(out, out, C) / C + $eps);
            for (int c = 0; c < C; c++) out[c] = out[c] * factor * weight[c]$shift;
//% if y_half then
            narrow_row(y + (size_t)i * C, out, C);
//% end
            mean[i] = middle;
            rstd[i] = factor;
        }
    }
}

//@ rmsnorm(fn, params, source, rows, C, eps, sqrt, x_half, value)
/* $fn: x rstd weight for $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
//% if x_half then
            real row[C];
            widen_row(row, x + (size_t)i * C, C);
//% else
            const real *row = x + (size_t)i * C;
//% end
            const real factor = 1 / $sqrt(row_dot(row, row, C) / C + $eps);
            for (int c = 0; c < C; c++) y[(size_t)i * C + c] = $value;
            rstd[i] = factor;
        }
    }
}

//@ norm_dx(fn, params, source, rows, C, centred, x_half, dy, row, store)
/* $fn: the gradient of a norm with respect to its input, for $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
//% if x_half then
            real row[C];
            widen_row(row, x + (size_t)r * C, C);
//% else
            const real *row = x + (size_t)r * C;
//% end
            real scaled[C]; /* the gradient of the normalised row */
            for (int c = 0; c < C; c++) scaled[c] = $dy * weight[c];
//% if centred then
            const real factor = rstd[r], middle = mean[r], level = row_sum(scaled, C) / C;
//% else
            const real factor = rstd[r], middle = 0, level = 0;
//% end
            const real slope = row_lever(scaled, row, middle, C) * factor * factor / C;
            INDEPENDENT for (int c = 0; c < C; c++) {
                const real value = factor * (scaled[c] - level - (row[c] - middle) * slope);
                $store
            }
//% if row then
            narrow_row($row + (size_t)r * C, scaled, C);
//% end
        }
    }
}

//@ norm_dw(fn, params, source, rows, C, width, centred, init, heads, x, dy)
/* $fn: the gradient of a norm's weight, summed over $rows rows of $C in their order
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = $width };
    enum { RUN = 4, AHEAD = 16 }; /* rows that a sum in a register takes; rows asked for */
    for (ga_tiles t = ga_tiles_begin(w, (C + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int j0 = (int)t.index * TILE, n = j0 + TILE < C ? TILE : C - j0;
        real sum[TILE];
        for (int j = 0; j < n; j++) sum[j] = $init;
        for (int i = 0; i < ROWS; i += RUN) {
            $heads
            const int rows = i + RUN < ROWS ? RUN : ROWS - i;
            if (i + AHEAD + RUN <= ROWS)
                for (int r = AHEAD; r < AHEAD + RUN; r++) {
                    fetch_row(row + r * C, sizeof *row * TILE);
                    fetch_row(d + r * C, sizeof *d * TILE);
                }
            real middle[RUN] = {0}, factor[RUN] = {0};
            for (int r = 0; r < rows; r++) {
//% if centred then
                middle[r] = mean[i + r];
//% end
                factor[r] = rstd[i + r];
            }
            if (rows < RUN)
                for (int r = 0; r < rows; r++)
                    for (int j = 0; j < n; j++) sum[j] += $dy * (($x - middle[r]) * factor[r]);
            else
                for (int j = 0; j < n; j++) {
                    UNROLL for (int r = 0; r < RUN; r++) sum[j] += $dy * (($x - middle[r]) * factor[r]);
                }
        }
        for (int j = 0; j < n; j++) y[j0 + j] = sum[j];
    }
}
