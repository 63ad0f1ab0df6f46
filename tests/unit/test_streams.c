/* Streamed rows: the loader against the same rows in memory, in every setting; how far it reads a feed;
 * feeds that fail, shrink and grow. */
#include "rows.h"
#include "scratch.h"

#include "data/data.h"

enum { B = 2, EPOCHS = 3, RANKS = 2, PASSES = 64, BATCHES_MAX = 60 };

/* A feed of numbered rows: pass i, from 0, has rows[i] rows, and later passes as many as the last entry
 * says; row `bad` of pass `bad_pass` is faulty. */
typedef struct passing {
    int64_t rows[4];
    int entries, bad_pass;
    int64_t bad;
    int pass;              /* the present pass, from 1; 0: none yet */
    int64_t read[PASSES];  /* rows read in each pass */
    bool ended, closed;
} passing;

static int64_t rows_now(const passing *p) {
    return p->rows[p->pass <= p->entries ? p->pass - 1 : p->entries - 1];
}

static int rewind_rows(void *self, ga_err *e) {
    passing *p = self;
    (void)e;
    assert_true(++p->pass < PASSES);
    p->read[p->pass - 1] = 0;
    return GA_OK;
}

static int next_row(void *self, void *const out[], ga_err *e) {
    passing *p = self;
    int64_t *at = &p->read[p->pass - 1];
    assert_true(p->pass > 0);
    if (*at == rows_now(p)) return 0;
    if (p->pass - 1 == p->bad_pass && *at == p->bad)
        return ga_fail(e, GA_INPUT, "row %lld is at fault", (long long)*at);
    if (out) decode_row(NULL, *at, NULL, out);
    ++*at;
    return 1;
}

static void close_rows(void *self) {
    ((passing *)self)->closed = true;
}

static ga_source source_of(passing *p) {
    ga_source s = numbered_rows(0);
    s.decode = NULL;
    s.feed = (ga_feed){rewind_rows, next_row, close_rows, p};
    return s;
}

typedef struct setting {
    int64_t rows;
    const ga_accumulate *accumulate;
    int accumulates, world;
    ga_tail tail;
    bool pad, consume;
} setting;

static ga_loader_config config_of(const setting *s, const ga_source *source, int rank) {
    return (ga_loader_config){.data = {source, {.rows = source->rows}}, .batch = B,
                              .accumulate = s->accumulate, .accumulates = s->accumulates,
                              .tail = s->tail, .pad = s->pad, .consume = s->consume, .rank = rank,
                              .world = s->world, .seed = 7};
}

/* One micro-batch from a loader, and the micro-batches of its cycle from it on. */
typedef struct served {
    int64_t epoch, position, cycle, r, rest, rows, row;
    float input[B][ROW_WIDTH];
    int32_t id[B];
} served;

static served take(ga_loader *l, int rest) {
    const ga_place p = ga_loader_place(l);
    const ga_micro *m = ga_loader_micro(l, 0);
    served out = {p.epoch, p.position, p.cycle, p.r, rest, m->rows, m->row, {{0}}, {0}};
    assert_true(m->training == 1 && m->seed == 7 && m->cycle == p.cycle);
    memcpy(out.input, ga_loader_field(l, 0, 0), sizeof out.input);
    memcpy(out.id, ga_loader_field(l, 0, 1), sizeof out.id);
    return out;
}

/* Reads whole cycles until one begins after the EPOCHS; returns the number of micro-batches. */
static int serve(ga_loader *l, served *out) {
    int n = 0;
    ga_err e;
    while (ga_loader_place(l).epoch < EPOCHS) {
        int count = ga_loader_cycle(l, &e);
        assert_true(count > 0);
        for (; count > 0; count--) {
            assert_true(n < BATCHES_MAX);
            out[n++] = take(l, count);
            ga_loader_release(l, 1);
        }
    }
    return n;
}

typedef struct opened {
    ga_arena arena;
    ga_loader *l;
    ga_loader_config c;
} opened;

static int open_loader(opened *o, const setting *s, const ga_source *source, int rank, ga_err *e) {
    o->c = config_of(s, source, rank);
    o->arena = open_arena(ga_loader_bytes(&o->c));
    return ga_loader_open(&o->l, &o->c, &o->arena, e);
}

static void close_loader(opened *o) {
    ga_loader_close(o->l);
    ga_arena_close(&o->arena);
}

/* Checks how far each pass before the last was read: to the end, or only the served rows once the length
 * is known. */
static void check_drained(const setting *s, const passing *p, const served *list, int n) {
    const int64_t each = B * s->world;
    const int64_t batches = (s->rows + (s->pad ? each - 1 : 0)) / each;
    assert_true(p->closed && p->pass >= EPOCHS);
    for (int pass = 0; pass + 1 < EPOCHS; pass++) {
        int64_t last = 0, served_here = 0;
        for (int i = 0; i < n; i++)
            if (list[i].epoch == pass) {
                served_here++;
                last = list[i].position + 1;
            }
        int64_t drained = batches - served_here;
        if (s->tail != GA_DROP) assert_int_equal(drained, 0);
        if (pass == 0 || s->consume) {
            assert_int_equal(p->read[pass], s->rows);
        } else {
            const int64_t used = last * each < s->rows ? last * each : s->rows;
            assert_int_equal(p->read[pass], used);
            drained = batches - last;
        }
        assert_int_equal(served_here + drained, batches); /* none is lost or repeated */
        for (int64_t k = 0, i = 0; k < served_here; k++, i++) {
            while (list[i].epoch != pass) i++;
            assert_int_equal(list[i].position, k);
        }
    }
}

/* Reads every micro-batch again after a seek to its place, with a loader that knows the length and with a
 * new one. */
static void check_seeks(ga_loader *l, const setting *s, int rank, const served *straight, int n) {
    for (int fresh = 0; fresh < 2; fresh++)
        for (int i = n - 1; i >= 0; i -= 3) {
            passing p = {.rows = {s->rows}, .entries = 1, .bad_pass = -1};
            const ga_source source = source_of(&p);
            opened o;
            if (fresh) assert_int_equal(open_loader(&o, s, &source, rank, NULL), 0);
            ga_loader *at = fresh ? o.l : l;
            const served *b = &straight[i];
            const ga_place to = {b->epoch, b->position, b->cycle, (int)b->r};
            assert_int_equal(ga_loader_seek(at, to, NULL), 0);
            assert_int_equal(ga_loader_cycle(at, NULL), b->rest);
            const served again = take(at, (int)b->rest);
            assert_memory_equal(&again, b, sizeof again);
            if (fresh) close_loader(&o);
        }
}

static void run_rank(const setting *s, int rank) {
    static served memory[BATCHES_MAX], stream[BATCHES_MAX];
    passing p = {.rows = {s->rows}, .entries = 1, .bad_pass = -1};
    const ga_source kept = numbered_rows(s->rows), source = source_of(&p);
    opened a, b;
    ga_err e;
    if (open_loader(&a, s, &kept, rank, &e) < 0) { /* no epoch serves a cycle */
        char says[512];
        strcpy(says, e.msg);
        assert_int_equal(open_loader(&b, s, &source, rank, &e), 0);
        assert_int_equal(ga_loader_place(b.l).cycle, 0);
        int code;
        while ((code = ga_loader_cycle(b.l, &e)) > 0) ga_loader_release(b.l, code);
        assert_int_equal(code, GA_INPUT);
        assert_string_equal(e.msg, says);
        ga_arena_close(&a.arena);
        close_loader(&b);
        return;
    }
    const int n = serve(a.l, memory);
    close_loader(&a);
    assert_int_equal(open_loader(&b, s, &source, rank, &e), 0);
    assert_int_equal(serve(b.l, stream), n);
    assert_memory_equal(stream, memory, (size_t)n * sizeof *memory);
    if (s->rows % 2) check_seeks(b.l, s, rank, stream, n);
    const bool seeks = s->rows % 2;
    close_loader(&b);
    if (!seeks) check_drained(s, &p, stream, n);
}

static const ga_accumulate growing[] = {{0, 1}, {2, 2}, {4, 3}, {5, 2}};

static void as_from_memory(void **state) {
    (void)state;
    for (int64_t rows = 0; rows <= 23; rows++)
        for (int a = 0; a <= 4; a++)
            for (int tail = GA_DROP; tail <= GA_CARRY; tail++)
                for (int how = 0; how < 4; how++)
                    for (int world = 1; world <= RANKS; world++) {
                        const ga_accumulate one = {0, a};
                        const setting s = {.rows = rows, .accumulate = a ? &one : growing,
                                           .accumulates = a ? 1 : 4, .world = world,
                                           .tail = (ga_tail)tail, .pad = how % 2, .consume = how / 2};
                        for (int rank = 0; rank < world; rank++) run_rank(&s, rank);
                    }
}

/* -- feeds that fail or change ------------------------------------------------------------------ */

static const ga_accumulate three[] = {{0, 3}};

/* Reads whole cycles until reading stops; gives their lengths, then 0. */
static int lengths(ga_loader *l, int *length, ga_err *e) {
    int n = 0, code;
    for (; (code = ga_loader_cycle(l, e)) > 0 && n < 20; n++) {
        length[n] = code;
        ga_loader_release(l, code);
    }
    length[n] = 0;
    return code;
}

static void faulty(void **state) {
    (void)state;
    static const struct {
        ga_tail tail;
        int pass;
        int64_t row;
        int cycles;
        ga_place place;
    } table[] = { /* 20 rows: 10 micro-batches, cycles of 3 */
        {GA_DROP, 0, 0, 0, {0, 0, 0, 0}},    {GA_DROP, 0, 5, 0, {0, 0, 0, 0}},
        {GA_DROP, 0, 6, 1, {0, 3, 1, 0}},    {GA_DROP, 0, 17, 2, {0, 6, 2, 0}},
        {GA_DROP, 0, 19, 3, {0, 9, 3, 0}},   {GA_DROP, 1, 8, 4, {1, 3, 4, 0}},
        {GA_FLUSH, 1, 3, 4, {0, 10, 4, 0}},  {GA_CARRY, 1, 3, 3, {0, 9, 3, 0}},
        {GA_CARRY, 1, 4, 4, {1, 2, 4, 0}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const setting s = {.accumulate = three, .accumulates = 1, .world = 1, .tail = table[i].tail};
        passing p = {.rows = {20}, .entries = 1, .bad_pass = table[i].pass, .bad = table[i].row};
        const ga_source source = source_of(&p);
        opened o;
        ga_err e;
        int length[24];
        assert_int_equal(open_loader(&o, &s, &source, 0, &e), 0);
        assert_int_equal(lengths(o.l, length, &e), GA_INPUT);
        int n = 0;
        while (length[n]) n++;
        assert_int_equal(n, table[i].cycles);
        char says[64];
        snprintf(says, sizeof says, "row %lld is at fault", (long long)table[i].row);
        assert_string_equal(e.msg, says);
        assert_int_equal(ga_loader_cycle(o.l, &e), GA_INPUT); /* the error stays */
        const ga_place at = ga_loader_place(o.l), *want = &table[i].place;
        assert_true(at.epoch == want->epoch && at.position == want->position);
        assert_true(at.cycle == want->cycle && at.r == want->r);
        p.bad_pass = -1; /* the fault is gone: reading continues */
        assert_int_equal(ga_loader_seek(o.l, at, &e), 0);
        assert_true(ga_loader_cycle(o.l, &e) > 0);
        assert_true(ga_loader_place(o.l).cycle == want->cycle && ga_loader_place(o.l).r == 0);
        close_loader(&o);
    }
}

/* Passes of different lengths: the cycles of each epoch, and the refusal of the last one. */
static void changing(void **state) {
    (void)state;
    static const char too_short[] =
        "data: 5 training rows in micro-batches of 2 rows on each of 1 rank: an epoch has 2 "
        "micro-batches, a cycle needs 3: use a smaller batch or accumulate, or accumulate's tail = "
        "\"carry\"";
    static const char empty[] =
        "data: 0 training rows in micro-batches of 2 rows on each of 1 rank: an epoch has 0 "
        "micro-batches, a cycle needs 1: use a smaller batch, fewer ranks or data.last = \"pad\"";
    static const struct {
        int64_t rows[4];
        int entries;
        ga_tail tail;
        bool consume;
        int length[16];
        const char *says;
    } table[] = {
        {{20, 13, 5}, 3, GA_DROP, false, {3, 3, 3, /**/ 3, 3}, too_short},
        {{20, 13, 5}, 3, GA_DROP, true, {3, 3, 3, /**/ 3, 3}, too_short},
        {{13, 20, 5}, 3, GA_DROP, true, {3, 3, /**/ 3, 3, 3}, too_short},
        {{13, 20, 5}, 3, GA_DROP, false, {3, 3, /* the length of epoch 0 limits epoch 1 */ 3, 3}, too_short},
        {{20, 13, 5, 0}, 4, GA_FLUSH, true, {3, 3, 3, 1, /**/ 3, 3, /**/ 2}, empty},
        {{20, 13, 5, 0}, 4, GA_CARRY, false, {3, 3, 3, /**/ 3, 3, /**/ 3}, empty},
        {{5}, 1, GA_DROP, false, {0}, too_short},
        {{0}, 1, GA_FLUSH, false, {0}, empty},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const setting s = {.accumulate = three, .accumulates = 1, .world = 1, .tail = table[i].tail,
                           .consume = table[i].consume};
        passing p = {.entries = table[i].entries, .bad_pass = -1};
        memcpy(p.rows, table[i].rows, sizeof p.rows);
        const ga_source source = source_of(&p);
        opened o;
        ga_err e;
        int length[24];
        assert_int_equal(open_loader(&o, &s, &source, 0, &e), 0);
        assert_int_equal(lengths(o.l, length, &e), GA_INPUT);
        for (int k = 0; k == 0 || table[i].length[k - 1]; k++)
            assert_int_equal(length[k], table[i].length[k]);
        assert_string_equal(e.msg, table[i].says);
        close_loader(&o);
    }
}

static void no_such_place(void **state) {
    (void)state;
    static const struct {
        ga_tail tail;
        ga_place to;
        int cycle; /* micro-batches left of the cycle; 0: refused */
    } table[] = { /* 20 rows: 10 micro-batches, cycles of 3 */
        {GA_DROP, {0, 9, 3, 0}, 3},  {GA_DROP, {0, 10, 3, 0}, 3},  {GA_DROP, {0, 11, 3, 0}, 0},
        {GA_DROP, {4, 10, 3, 1}, 0}, {GA_FLUSH, {0, 9, 3, 0}, 1},  {GA_FLUSH, {0, 10, 3, 1}, 0},
        {GA_CARRY, {0, 9, 3, 0}, 3}, {GA_CARRY, {0, 10, 3, 1}, 2}, {GA_CARRY, {1, 11, 3, 1}, 0},
        {GA_DROP, {0, 2, 0, 3}, 0},  {GA_DROP, {0, 1, 0, 2}, 0},   {GA_DROP, {-1, 0, 0, 0}, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const setting s = {.accumulate = three, .accumulates = 1, .world = 1, .tail = table[i].tail};
        passing p = {.rows = {20}, .entries = 1, .bad_pass = -1};
        const ga_source source = source_of(&p);
        opened o;
        ga_err e;
        assert_int_equal(open_loader(&o, &s, &source, 0, &e), 0);
        int code = ga_loader_seek(o.l, table[i].to, &e);
        if (code == GA_OK) code = ga_loader_cycle(o.l, &e);
        assert_int_equal(code, table[i].cycle ? table[i].cycle : GA_INPUT);
        if (code < 0) assert_has(e.msg, "no such place");
        close_loader(&o);
    }
}

int test_streams(void);
int test_streams(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_from_memory), cmocka_unit_test(faulty), cmocka_unit_test(changing),
        cmocka_unit_test(no_such_place)};
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
