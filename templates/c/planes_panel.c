// planes_panel: terms of the sums of a convolution as panels for products in blocks (planes_terms.c).

//@ planes_panel(half, type)
/* A panel of B: `terms` terms from `first` on, zeros behind them up to a multiple of 32. `most`: the depth of a whole
 * panel. Pairs of the same two taps follow each other, so that their windows stay in registers. */
static __attribute__((noinline)) void conv_panel(bf16 *panel, int most, const conv_terms *x, int first, int terms) {
    const int period = x->taps % 2 ? 2 * x->taps : x->taps, pairs = terms / 2 * 2;
    const size_t step = (size_t)(period / x->taps) * x->plane, slice = 32 * (size_t)most;
    bf16_pairs all[SLICES];
    for (int v = 0; v < x->count / 16; v++) {
        bf16 *to = panel + v / 2 * 32 * SLICES * most + v % 2 * 32;
        for (int start = 0; start < period && start < pairs; start += 2) {
            const conv_term even = conv_term_at(x, first + start, true), odd = conv_term_at(x, first + start + 1, true);
            const conv_window a = even.window[v], b = odd.window[v];
            const bool runs = a.run && b.run;
            const $type *p = even.plane, *q = odd.plane;
            if (runs)
                for (int k = start; k < pairs; k += period, p += step, q += step) {
                    conv_pairs(all, conv_take_run(p, &a), conv_take_run(q, &b));
                    store_pairs(to + 32 * k, all, slice);
                }
            else
                for (int k = start; k < pairs; k += period, p += step, q += step) {
                    conv_pairs(all, conv_take(p, &a), conv_take(q, &b));
                    store_pairs(to + 32 * k, all, slice);
                }
        }
        for (int k = pairs; k < (terms + 31) / 32 * 32; k += 2) {
            const conv_term last = conv_term_at(x, first + k, k < terms), none = conv_term_at(x, first + k, false);
            conv_pairs(all, conv_take(last.plane, last.window + v), conv_take(none.plane, none.window + v));
            store_pairs(to + 32 * k, all, slice);
        }
    }
}
