//@ row(header, calls)
$header

/* Part of step.c. Results lie where those of a whole micro-batch lie: in its row 0. */

/* Row 0 over all positions. */
static void forward_row(ga_worker *w, model *m, const batch *b) {
    $calls
    ga_barrier(w);
}

//@ position(calls)
/* One position of row 0. The positions before it have left their keys and values. */
static void forward_position(ga_worker *w, model *m, const batch *b, size_t position) {
    $calls
    ga_barrier(w);
}
