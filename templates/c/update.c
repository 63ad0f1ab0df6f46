// update: kernels of the boundary, over the flat space.

//@ gradient_partials(fn, params, source, operands, says, name, largest, read, add)
/* $fn: per tile of the gradient $says and the count of elements that are
 * not finite; added up in tile order by decide().
 * $source */
static void $fn($params) {
    enum { LANES = 32, AHEAD = 512 };
    $operands
    for (ga_tiles t = ga_tiles_begin(worker, (count + NORM_TILE - 1) / NORM_TILE); ga_tile_next(&t);) {
        const int64_t first = t.index * NORM_TILE, end = first + NORM_TILE < count ? first + NORM_TILE : count;
        double $(name)[LANES] = {0}; /* element i goes to lane i % LANES */
        int bad[LANES] = {0};
        int64_t i = first;
        for (; i + LANES <= end; i += LANES) {
            if (i + AHEAD < count) fetch_row(run_g + i + AHEAD, sizeof *run_g * LANES);
            for (int j = 0; j < LANES; j++) {
                $read
                $add
            }
        }
        for (int j = 0; i + j < end; j++) {
            $read
            $add
        }
//% if largest then
        for (int j = 1; j < LANES; j++) $(name)[0] = fmax($(name)[0], $(name)[j]), bad[0] += bad[j];
//% else
        for (int j = 1; j < LANES; j++) $(name)[0] += $(name)[j], bad[0] += bad[j];
//% end
        partials[2 * t.index] = $(name)[0];
        partials[2 * t.index + 1] = bad[0];
    }
}

//@ sums(fn, params, source, operands, formula, loads, statements, stores, names, adds, totals, tile)
/* $fn: sums over one tensor, one for each tile:
$formula
 * $source */
static void $fn($params) {
    enum { TILE = $tile };
    $operands
    for (ga_tiles t = ga_tiles_begin(worker, (count + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = t.index * TILE, end = first + TILE < count ? first + TILE : count;
        double $names;
        for (int64_t i = first; i < end; i++) {
            $loads
            $statements
            $stores
            $adds
        }
//% for i, name in ipairs(totals) do
        sums[$(#totals) * t.index + $(i - 1)] = $name;
//% end
    }
}

//@ scales(fn, params, source, operands, formula, names, totals, scales)
/* $fn: numbers of one tensor, from the sums over its tiles:
$formula
 * $source */
static void $fn($params) {
    if (worker->index != 0) return;
    $operands
    double $names;
    for (int64_t i = 0; i < tiles; i++) {
//% for i, name in ipairs(totals) do
        $name += sums[$(#totals) * i + $(i - 1)];
//% end
    }
    $scales
}

//@ sweep(fn, params, source, operands, formula, loads, statements, stores, once, tile)
/* $fn:
$formula
 * $source */
static void $fn($params) {
    enum { TILE = $tile };
    $operands
    $once
    for (ga_tiles t = ga_tiles_begin(worker, (count + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = t.index * TILE, end = first + TILE < count ? first + TILE : count;
        INDEPENDENT for (int64_t i = first; i < end; i++) {
            $loads
            $statements
            $stores
        }
    }
}

//@ matrix_rows(fn, params, source, operands, formula, loads, term, row_var)
/* $fn: for each row of the matrices, by tiles of rows:
$formula
 * $source */
static void $fn($params) {
    $operands
    const int64_t all = count / columns;
    for (ga_tiles t = ga_tiles_begin(worker, (all + tall - 1) / tall); ga_tile_next(&t);) {
        const int64_t first = t.index * tall, end = first + tall < all ? first + tall : all;
        for (int64_t r = first; r < end; r++) {
            double sum = 0;
            for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
                $loads
                sum += (double)($term);
            }
            const real row_var = run_row_var[r], mean = (real)(sum / columns);
            run_row_var[r] = $row_var;
        }
    }
}

//@ matrix_columns(fn, params, source, operands, formula, loads, term, chunk)
/* $fn: for each column of the matrices:
$formula
 * $source */
static void $fn($params) {
    enum { CHUNK = $chunk, WIDE = 64 }; /* rows of a sum; columns that are summed side by side */
    $operands
    const int64_t size = (int64_t)rows * columns, chunks = (rows + CHUNK - 1) / CHUNK;
    const int64_t all = count / size * chunks, few = size < 4096 ? 4096 / size : 1;
    for (ga_tiles t = ga_tiles_begin(worker, (all + few - 1) / few); ga_tile_next(&t);) {
        const int64_t first = t.index * few, end = first + few < all ? first + few : all;
        for (int64_t k = first; k < end; k++) {
            const int64_t row = k % chunks * CHUNK, behind = row + CHUNK < rows ? row + CHUNK : rows;
            for (int c = 0; c < columns; c += WIDE) {
                const int wide = columns - c < WIDE ? columns - c : WIDE;
                double sum[WIDE] = {0};
                for (int64_t r = row; r < behind; r++) {
                    const int64_t at = k / chunks * size + r * columns + c;
                    for (int64_t i = at; i < at + wide; i++) {
                        $loads
                        sum[i - at] += (double)($term);
                    }
                }
                for (int j = 0; j < wide; j++) sums[k * columns + c + j] = (real)sum[j];
            }
        }
    }
}

//@ matrix_factors(fn, params, source, operands, formula, row, col_var, chunk)
/* $fn: for each matrix, by tiles of whole ones:
$formula
 * $source */
static void $fn($params) {
    enum { CHUNK = $chunk };
    $operands
    const int chunks = (rows + CHUNK - 1) / CHUNK;
    const int64_t size = (int64_t)rows * columns, few = size < 4096 ? 4096 / size : 1;
    for (ga_tiles t = ga_tiles_begin(worker, (matrices + few - 1) / few); ga_tile_next(&t);) {
        const int64_t first = t.index * few, end = first + few < matrices ? first + few : matrices;
        for (int64_t k = first; k < end; k++) {
            double sum = 0;
            for (int64_t r = k * rows; r < (k + 1) * rows; r++) sum += (double)run_row_var[r];
            const real mean = (real)(sum / rows);
            for (int64_t r = k * rows; r < (k + 1) * rows; r++) {
                const real row_var = run_row_var[r];
                row_factors[r] = $row;
            }
            for (int c = 0; c < columns; c++) {
                double column = 0;
                for (int j = 0; j < chunks; j++) column += (double)sums[(k * chunks + j) * columns + c];
                const real col_var = run_col_var[k * columns + c], mean = (real)(column / rows);
                run_col_var[k * columns + c] = $col_var;
            }
        }
    }
}

//@ matrix_sums(fn, params, source, operands, formula, loads, statements, stores, names, adds, totals)
/* $fn: sums over one tensor, one for each tile of rows of its matrices:
$formula
 * $source */
static void $fn($params) {
    $operands
    const int64_t all = count / columns;
    for (ga_tiles t = ga_tiles_begin(worker, (all + tall - 1) / tall); ga_tile_next(&t);) {
        const int64_t first = t.index * tall, end = first + tall < all ? first + tall : all;
        double $names;
        for (int64_t r = first; r < end; r++) {
            const real row = row_factors[r], *col_var = run_col_var + r / rows * columns;
            for (int c = 0; c < columns; c++) {
                const int64_t i = r * columns + c;
                const real column = col_var[c];
                $loads
                $statements
                $stores
                $adds
            }
        }
//% for i, name in ipairs(totals) do
        sums[$(#totals) * t.index + $(i - 1)] = $name;
//% end
    }
}

//@ matrix_sweep(fn, params, source, operands, formula, loads, statements, stores, once)
/* $fn:
$formula
 * $source */
static void $fn($params) {
    $operands
    const int64_t all = count / columns;
    $once
    for (ga_tiles t = ga_tiles_begin(worker, (all + tall - 1) / tall); ga_tile_next(&t);) {
        const int64_t first = t.index * tall, end = first + tall < all ? first + tall : all;
        for (int64_t r = first; r < end; r++) {
            const real row = row_factors[r], *col_var = run_col_var + r / rows * columns;
            for (int c = 0; c < columns; c++) {
                const int64_t i = r * columns + c;
                const real column = col_var[c];
                $loads
                $statements
                $stores
            }
        }
    }
}

//@ exchange(fn, params, source, operands, tile)
/* $fn: trained parameters and their averages change places.
 * $source */
static void $fn($params) {
    enum { TILE = $tile };
    $operands
    for (ga_tiles t = ga_tiles_begin(worker, (count + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = t.index * TILE, end = first + TILE < count ? first + TILE : count;
        for (int64_t i = first; i < end; i++) {
            const real x = run_w[i];
            run_w[i] = run_ema[i];
            run_ema[i] = x;
        }
    }
}

//@ batchnorm_move(ranks)
/* batchnorm_move: running statistics of the channels of a layer, moved by those of all values of the cycle,
 * `values` of each group, the variance as that of a sample. */
static void batchnorm_move(ga_worker *worker, real *mean, real *variance, real *batches, const real *cycle_mean,
                           const real *cycle_variance, const real *cycle_batches, int channels, int64_t values,
                           double momentum) {
    if (worker->index != 0) return;
    const double all = (double)cycle_batches[0] * (double)values;
    const real step_size = (real)momentum, rest = (real)(1 - momentum), unbiased = (real)(all / (all - 1));
    for (int c = 0; c < channels; c++) {
//% if ranks then
        const real apart = cycle_mean[c] / cycle_batches[0]; /* of the cycle's average from the running one */
        const real spread = cycle_variance[c] / cycle_batches[0] - apart * apart;
        mean[c] += step_size * apart;
        variance[c] = rest * variance[c] + step_size * ((spread < 0 ? 0 : spread) * unbiased);
//% else
        mean[c] = rest * mean[c] + step_size * cycle_mean[c];
        variance[c] = rest * variance[c] + step_size * (cycle_variance[c] * unbiased);
//% end
    }
    batches[0] += 1;
}
