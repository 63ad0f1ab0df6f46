/* Cycles over epochs: every number of micro-batches 1..12 with every accumulation 1..5, each tail,
 * whole and padded, on one to three ranks; tables of accumulation; fractions of an epoch. */
#include "rows.h"
#include "scratch.h"

#include "data/data.h"

enum { B = 2, EPOCHS = 3, RANKS = 3, SERVED_MAX = 40, ROWS_MAX = 80 };

/* One micro-batch from a loader. */
typedef struct served {
    ga_place place;
    ga_micro micro;
    int32_t ids[B];
} served;

typedef struct setting {
    int batches, accumulate, world;
    ga_tail tail;
    bool pad, even;
    int64_t rows;
} setting;

/* Rows that give s->batches micro-batches: exactly full ones (even), a single row in the last one (pad), or one
 * row less than one more micro-batch needs. */
static int64_t rows_for(const setting *s) {
    const int64_t each = B * s->world;
    if (s->even) return s->batches * each;
    return s->pad ? (s->batches - 1) * each + 1 : s->batches * each + each - 1;
}

static ga_loader_config config_of(const setting *s, const ga_source *source,
                                  const ga_accumulate *accumulate, int rank) {
    return (ga_loader_config){.data = {source, {.rows = s->rows}},
                              .batch = B,
                              .accumulate = accumulate,
                              .accumulates = 1,
                              .tail = s->tail,
                              .pad = s->pad,
                              .rank = rank,
                              .world = s->world,
                              .seed = 7,
                              .shuffle = true};
}

/* The lengths of the cycles of EPOCHS epochs, found one micro-batch at a time; returns their number. */
static int lengths(const setting *s, int *length) {
    const int full = s->batches / s->accumulate * s->accumulate;
    int n = 0, r = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int k = 0; k < s->batches; k++) {
            if (s->tail == GA_DROP && k >= full) continue;
            r++;
            if (r < s->accumulate && !(s->tail == GA_FLUSH && k == s->batches - 1)) continue;
            length[n++] = r;
            r = 0;
        }
    }
    return n;
}

static served take(ga_loader *l) {
    served out;
    memset(&out, 0, sizeof out); /* compared byte by byte */
    const ga_place p = ga_loader_place(l);
    out.place.epoch = p.epoch;
    out.place.position = p.position;
    out.place.cycle = p.cycle;
    out.place.r = p.r;
    out.micro = *ga_loader_micro(l, 0);
    memcpy(out.ids, ga_loader_field(l, 0, 1), sizeof out.ids);
    return out;
}

/* Reads all micro-batches of the run on one rank; each is released alone, so that its place is known. */
static int serve(ga_loader *l, const int *length, int cycles, served *out) {
    int n = 0;
    for (int c = 0; c < cycles; c++) {
        assert_int_equal(ga_loader_cycle(l, NULL), length[c]);
        for (int r = 0; r < length[c]; r++) {
            out[n] = take(l);
            assert_true(out[n].place.cycle == c && out[n].place.r == r);
            n++;
            ga_loader_release(l, 1);
        }
    }
    return n;
}

/* Checks the facts of each micro-batch, which follow from its place alone. */
static void check_micro(const setting *s, int rank, const served *b) {
    const int64_t first = (b->place.position * s->world + rank) * B, rest = s->rows - first;
    assert_int_equal(b->micro.rows, rest < 0 ? 0 : rest < B ? rest : B);
    assert_int_equal(b->micro.row, (b->place.r * s->world + rank) * B);
    assert_int_equal(b->micro.cycle, b->place.cycle);
    assert_true(b->micro.training == 1 && b->micro.seed == 7);
    assert_in_range(b->ids[0], 0, s->rows - 1);
    for (int64_t i = b->micro.rows; i < B; i++) assert_int_equal(b->ids[i], b->ids[0]);
}

/* Reads every micro-batch again, each after a seek to its place. */
static void check_seeks(ga_loader *l, const int *length, const served *straight, int n) {
    for (int i = n - 1; i >= 0; i--) {
        const ga_place to = straight[i].place;
        assert_int_equal(ga_loader_seek(l, to, NULL), 0);
        assert_int_equal(ga_loader_cycle(l, NULL), length[to.cycle] - to.r);
        const served again = take(l);
        assert_memory_equal(&again, &straight[i], sizeof again);
    }
}

/* Adds the rows of one rank to `seen`, which counts how often an epoch served each row. */
static void run_rank(const setting *s, int rank, const int *length, int cycles,
                     int seen[EPOCHS][ROWS_MAX]) {
    static served straight[SERVED_MAX];
    const ga_source source = numbered_rows(s->rows);
    const ga_accumulate accumulate = {0, s->accumulate};
    const ga_loader_config c = config_of(s, &source, &accumulate, rank);
    const ga_epochs epochs = ga_loader_epochs(&c);
    ga_arena a = open_arena(ga_loader_bytes(&c));
    ga_loader *l;
    assert_int_equal(epochs.batches, s->batches);
    assert_int_equal(ga_epochs_cycles(&epochs, EPOCHS), cycles);
    assert_int_equal(ga_loader_open(&l, &c, &a, NULL), 0);
    memset(straight, 0, sizeof straight);
    const int n = serve(l, length, cycles, straight);
    for (int i = 0; i < n; i++) {
        check_micro(s, rank, &straight[i]);
        for (int64_t b = 0; b < straight[i].micro.rows; b++)
            seen[straight[i].place.epoch][straight[i].ids[b]]++;
    }
    check_seeks(l, length, straight, n);
    ga_loader_close(l);
    ga_arena_close(&a);
}

/* Each row of an epoch was served once; rows of a dropped tail, counted here, were not. */
static void check_rows(const setting *s, int cycles, const int *length,
                       int seen[EPOCHS][ROWS_MAX]) {
    int used = 0;
    for (int c = 0; c < cycles; c++) used += length[c];
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int here = used - epoch * s->batches; /* with GA_CARRY the last epoch may be incomplete */
        if (s->tail != GA_CARRY) here = used / EPOCHS;
        if (here > s->batches) here = s->batches;
        if (here < 0) here = 0;
        const int64_t there = (int64_t)here * B * s->world;
        int64_t once = 0;
        for (int row = 0; row < s->rows; row++) {
            assert_true(seen[epoch][row] <= 1);
            once += seen[epoch][row];
        }
        assert_int_equal(once, there < s->rows ? there : s->rows);
    }
}

static void run_setting(setting s) {
    int length[SERVED_MAX], seen[EPOCHS][ROWS_MAX] = {{0}};
    s.rows = rows_for(&s);
    if (s.tail == GA_DROP && s.batches < s.accumulate) {
        const ga_source source = numbered_rows(s.rows);
        const ga_accumulate accumulate = {0, s.accumulate};
        const ga_loader_config c = config_of(&s, &source, &accumulate, 0);
        ga_loader *l;
        ga_err e;
        assert_int_equal(ga_loader_open(&l, &c, NULL, &e), GA_INPUT);
        assert_has(e.msg, "micro-batches, a cycle needs");
        return;
    }
    const int cycles = lengths(&s, length);
    for (int rank = 0; rank < s.world; rank++) run_rank(&s, rank, length, cycles, seen);
    check_rows(&s, cycles, length, seen);
}

static void every_setting(void **state) {
    (void)state;
    for (int batches = 1; batches <= 12; batches++)
        for (int accumulate = 1; accumulate <= 5; accumulate++)
            for (int tail = GA_DROP; tail <= GA_CARRY; tail++)
                for (int ends = 0; ends < 4; ends++)
                    for (int world = 1; world <= RANKS; world++)
                        run_setting((setting){batches, accumulate, world, (ga_tail)tail,
                                              .pad = ends % 2, .even = ends / 2});
}

/* -- tables of accumulation -------------------------------------------------------------------- */

static const ga_accumulate growing[] = {{0, 1}, {3, 2}, {5, 4}, {6, 3}};

/* Ten micro-batches per epoch; the lengths of the cycles, determined by hand. */
static void tables(void **state) {
    (void)state;
    static const struct {
        ga_tail tail;
        int length[14]; /* a cycle of length 0 is the end of the list */
        int last;       /* epoch in which the last cycle ends */
    } table[] = {
        {GA_DROP, {1, 1, 1, 2, 2, /**/ 4, 3, 3, /**/ 3, 3, 3, /**/ 3}, 3},
        {GA_FLUSH, {1, 1, 1, 2, 2, 3, /**/ 3, 3, 3, 1, /**/ 3, 3, 3}, 2},
        {GA_CARRY, {1, 1, 1, 2, 2, /* 3 and */ 4, 3, 3, /**/ 3, 3, 3, 3}, 2},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ga_epochs s = {10, growing, 4, table[i].tail};
        ga_place p = {0};
        assert_int_equal(ga_epochs_check(&s, NULL), 0);
        assert_int_equal(ga_epochs_largest(&s), 4);
        int64_t epoch = 0;
        for (int c = 0; table[i].length[c]; c++) {
            assert_int_equal(ga_epochs_cycle(&s, &p), table[i].length[c]);
            ga_epochs_advance(&s, &p, table[i].length[c] - 1);
            epoch = p.epoch;
            ga_epochs_advance(&s, &p, 1);
            assert_true(p.cycle == c + 1 && p.r == 0);
        }
        assert_int_equal(epoch, table[i].last);
    }
}

/* ga_epochs_cycles against counting the cycles one by one. */
static void run_lengths(void **state) {
    (void)state;
    for (int64_t batches = 4; batches < 30; batches++)
        for (int tail = GA_DROP; tail <= GA_CARRY; tail++)
            for (int epochs = 0; epochs < 9; epochs++) {
                const ga_epochs s = {batches, growing, 4, (ga_tail)tail};
                ga_place p = {0};
                while (p.epoch < epochs) ga_epochs_advance(&s, &p, ga_epochs_cycle(&s, &p));
                /* with GA_CARRY the last cycle may end in the next epoch */
                const bool over = p.epoch > epochs || (p.epoch == epochs && p.position > 0);
                assert_int_equal(ga_epochs_cycles(&s, epochs), p.cycle - over);
            }
}

/* A run of one setting has the same cycles before each place, and ends where all of them do. */
static void no_shift(void **state) {
    (void)state;
    for (int64_t batches = 4; batches < 14; batches++)
        for (int tail = GA_DROP; tail <= GA_CARRY; tail++)
            for (int k = 0; k < 60; k++) {
                const ga_epochs s = {batches, growing, 4, (ga_tail)tail};
                ga_place p = {0};
                ga_epochs_advance(&s, &p, k);
                assert_int_equal(ga_epochs_shift(&s, p), 0);
                for (int quarters = 1; quarters < 30; quarters++) {
                    const int64_t all = ga_epochs_cycles(&s, quarters / 4.0);
                    assert_int_equal(ga_epochs_end(&s, p, quarters / 4.0), all > p.cycle ? all : p.cycle);
                }
            }
}

/* Epochs of twelve micro-batches in cycles of 2, behind cycles that were longer or shorter. */
static void other_cycles_before(void **state) {
    (void)state;
    static const ga_accumulate two = {0, 2};
    for (int tail = GA_DROP; tail <= GA_CARRY; tail++) {
        const ga_epochs s = {12, &two, 1, (ga_tail)tail};
        const int64_t each = tail == GA_CARRY ? 2 : 1;
        assert_int_equal(ga_epochs_shift(&s, (ga_place){1, 4, 4, 0}), -4 * each);
        assert_int_equal(ga_epochs_shift(&s, (ga_place){1, 4, 16, 0}), 8 * each);
        assert_int_equal(ga_epochs_shift(&s, (ga_place){2, 0, 24, 0}), 12 * each);
        assert_int_equal(ga_epochs_shift(&s, (ga_place){0, 7, 1, 1}), -2 * each);
    }
}

/* Behind cycles of any length a run ends with its epochs, against serving them one by one. Until then, epochs follow
 * from cycles as schedules have them. */
static void ends_with_its_epochs(void **state) {
    (void)state;
    for (int64_t batches = 1; batches < 14; batches++)
        for (int a = 1; a < 9; a++)
            for (int tail = batches < a ? GA_FLUSH : GA_DROP; tail <= GA_CARRY; tail++)
                for (int64_t done = 0; done < 3 * batches; done++) {
                    const ga_accumulate each = {0, a};
                    const ga_epochs s = {batches, &each, 1, (ga_tail)tail};
                    ga_place p = {done / batches, done % batches, 7, 0};
                    assert_int_equal(ga_epochs_place(&s, &p, NULL), GA_OK);
                    const ga_place start = p;
                    const int64_t shift = ga_epochs_shift(&s, start);
                    const int64_t end = ga_epochs_end(&s, start, 4);
                    const int64_t of_epoch = tail == GA_CARRY ? batches : ga_epochs_cycles(&s, 1);
                    for (;;) {
                        const int length = ga_epochs_cycle(&s, &p);
                        const int64_t all = p.epoch * batches + p.position;
                        if (p.epoch >= 4 || (tail == GA_CARRY && all + length > 4 * batches)) break;
                        assert_int_equal((p.cycle * (tail == GA_CARRY ? a : 1) - shift) / of_epoch, p.epoch);
                        ga_epochs_advance(&s, &p, length);
                    }
                    assert_int_equal(end, p.cycle);
                }
}

static void fractions(void **state) {
    (void)state;
    static const ga_accumulate four = {0, 4};
    static const struct {
        ga_tail tail;
        double epochs;
        int64_t cycles;
    } table[] = {
        {GA_DROP, 2.5, 5},  {GA_DROP, 0.5, 1},   {GA_DROP, 0.49, 0},  {GA_FLUSH, 1.5, 4},
        {GA_FLUSH, 2.4, 7}, {GA_CARRY, 0.79, 1}, {GA_CARRY, 0.8, 2},  {GA_CARRY, 2.5, 6},
        {GA_DROP, 1e6, 2000000}, {GA_FLUSH, 1e6, 3000000}, {GA_CARRY, 1e6, 2500000},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ga_epochs s = {10, &four, 1, table[i].tail};
        assert_int_equal(ga_epochs_cycles(&s, table[i].epochs), table[i].cycles);
    }
}

static void no_such_place(void **state) {
    (void)state;
    static const ga_accumulate four = {0, 4};
    static const struct {
        ga_tail tail;
        ga_place at;
        bool there;
    } table[] = {
        {GA_DROP, {0, 8, 2, 0}, true},   {GA_DROP, {0, 9, 2, 1}, false},
        {GA_DROP, {0, 2, 0, 3}, false},  {GA_DROP, {0, 7, 1, 3}, true},
        {GA_DROP, {-1, 0, 0, 0}, false}, {GA_DROP, {0, 11, 2, 0}, false},
        {GA_DROP, {0, 4, 0, 4}, false},  {GA_FLUSH, {0, 9, 2, 1}, true},
        {GA_FLUSH, {0, 10, 2, 2}, false}, {GA_FLUSH, {1, 1, 3, 2}, false},
        {GA_CARRY, {1, 1, 2, 3}, true},  {GA_CARRY, {0, 1, 0, 3}, false},
        {GA_CARRY, {0, 0, -1, 0}, false},
    };
    ga_err e;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ga_epochs s = {10, &four, 1, table[i].tail};
        ga_place p = table[i].at;
        assert_int_equal(ga_epochs_place(&s, &p, &e), table[i].there ? GA_OK : GA_INPUT);
    }
    const ga_epochs s = {10, &four, 1, GA_DROP};
    ga_place p = {0, 8, 2, 0};
    ga_epochs_place(&s, &p, &e);
    assert_true(p.epoch == 1 && p.position == 0 && p.cycle == 2);
    p = (ga_place){0, 9, 2, 1};
    ga_epochs_place(&s, &p, &e);
    assert_string_equal(e.msg, "data: epoch 0, micro-batch 9, cycle 2, 1 micro-batches into it: no "
                               "such place, an epoch has 10 micro-batches, a full cycle 4");
}

/* -- a tail that is consumed ------------------------------------------------------------------- */

static void count_row(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    decode_row(s, row, draw, out);
    ((int *)(uintptr_t)s->self)[row]++;
}

/* Ten micro-batches of 2 rows, cycles of 4: rows 16..19 are read only if the tail is consumed, and the
 * same rows are served. */
static void consumed(void **state) {
    (void)state;
    static const ga_accumulate four = {0, 4};
    for (int consume = 0; consume < 2; consume++) {
        int count[20] = {0};
        ga_source source = numbered_rows(20);
        source.decode = count_row;
        source.self = count;
        ga_loader_config c = {.data = {&source, {.rows = 20}}, .batch = B, .accumulate = &four,
                              .accumulates = 1, .consume = consume, .world = 1};
        ga_arena a = open_arena(ga_loader_bytes(&c));
        ga_loader *l;
        assert_int_equal(ga_loader_open(&l, &c, &a, NULL), 0);
        for (int cycle = 0; cycle < 3; cycle++) {
            assert_int_equal(ga_loader_cycle(l, NULL), 4);
            for (int k = 0; k < 4; k++) {
                const int32_t *id = ga_loader_field(l, k, 1);
                assert_true(id[0] == (cycle % 2 * 4 + k) * B && id[1] == id[0] + 1);
            }
            if (cycle < 2) ga_loader_release(l, 4);
        }
        ga_loader_close(l);
        for (int row = 16; row < 20; row++) assert_true((count[row] > 0) == consume);
        ga_arena_close(&a);
    }
}

int test_epochs(void);
int test_epochs(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting), cmocka_unit_test(tables), cmocka_unit_test(run_lengths),
        cmocka_unit_test(no_shift),      cmocka_unit_test(other_cycles_before),
        cmocka_unit_test(ends_with_its_epochs), cmocka_unit_test(fractions),
           cmocka_unit_test(no_such_place), cmocka_unit_test(consumed)};
    return cmocka_run_group_tests_name("epochs", tests, NULL, NULL);
}
