/* How the flat space and arrays beside it are divided over ranks. */
#include "scratch.h"

#include "base/bf16.h"
#include "files/layout_shard.h"
#include "files/sent.h"

/* Three buckets in the order in which they complete: the last is the first of the flat space. */
static const ga_bucket BUCKETS[] = {
    {352, 100, GA_REDUCE_SCATTER, GA_F32, GA_BY_ELEMENT},
    {192, 160, GA_REDUCE_SCATTER, GA_F32, GA_BY_TENSOR},
    {0, 192, GA_REDUCE_SCATTER, GA_F32, GA_BY_TENSOR},
};
enum { COUNT = 3, END = 452 };

/* Tensors of 96, 16, 80; 32, 128 elements. */
static const int64_t STARTS[] = {0, 96, 112, 192, 224};

static void open_division(ga_division *d, int rank, int size) {
    assert_int_equal(ga_division_open(d, BUCKETS, COUNT, STARTS, 5, rank, size, NULL), 0);
}

/* Each element of the flat space belongs to one rank, and its other elements are those of the others. */
static void covers(void **state) {
    (void)state;
    for (int size = 1; size <= 9; size++) {
        int owners[END] = {0};
        for (int rank = 0; rank < size; rank++) {
            ga_division d;
            int64_t last = -1, elements = 0;
            open_division(&d, rank, size);
            for (int i = 0; i < d.own.count; i++) {
                const ga_piece *p = &d.own.pieces[i];
                assert_true(p->from > last && p->n > 0 && p->at >= elements && p->at % GA_CUT == 0);
                last = p->from;
                elements = p->at + p->n;
                for (int64_t k = p->from; k < p->from + p->n; k++) owners[k]++;
                assert_int_equal(ga_shard_place(&d.own, p->from + p->n - 1), p->at + p->n - 1);
            }
            assert_int_equal(d.own.elements, (elements + GA_CUT - 1) / GA_CUT * GA_CUT);
            int64_t all = 0;
            for (int i = 0; i < d.own.count; i++) all += d.own.pieces[i].n;
            for (int i = 0; i < d.others.count; i++) {
                all += d.others.pieces[i].n;
                assert_int_equal(ga_shard_place(&d.own, d.others.pieces[i].from), -1);
            }
            assert_int_equal(all, END);
            ga_division_close(&d);
        }
        for (int i = 0; i < END; i++) assert_int_equal(owners[i], 1);
    }
}

/* Equal parts of 16s; the tensors of the larger bucket are balanced first, those of the other fill up. */
static void cuts(void **state) {
    (void)state;
    ga_division d;
    open_division(&d, 0, 3);
    const int64_t expected[COUNT][4] = {{0, 32, 64, 100}, {0, 32, 32, 160}, {0, 96, 192, 192}};
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < 4; k++) assert_int_equal(ga_division_cuts(&d, i)[k], expected[i][k]);
    ga_division_close(&d);
    open_division(&d, 0, 8); /* 100 elements are six times 16 and 4: too few for 8 equal parts */
    assert_int_equal(ga_division_cuts(&d, 0)[7], 0);
    assert_int_equal(ga_division_cuts(&d, 0)[8], 100);
    ga_division_close(&d);
}

/* Of four buckets in rising order the ranks get 0: 100 | 1: 60 | 1: 40 more | 0, the lower of equal ones. */
static void owners_of_buckets(void **state) {
    (void)state;
    static const ga_bucket owned[] = {
        {200, 30, GA_REDUCE_SCATTER, GA_F32, GA_BY_BUCKET},
        {160, 40, GA_REDUCE_SCATTER, GA_F32, GA_BY_BUCKET},
        {0, 100, GA_REDUCE_SCATTER, GA_F32, GA_BY_BUCKET},
        {100, 60, GA_REDUCE_SCATTER, GA_F32, GA_BY_BUCKET},
    };
    static const int expected[] = {0, 1, 0, 1};
    for (int rank = 0; rank < 2; rank++) {
        ga_division d;
        assert_int_equal(ga_division_open(&d, owned, 4, NULL, 0, rank, 2, NULL), 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(ga_division_cuts(&d, i)[1], expected[i] == 0 ? owned[i].n : 0);
            assert_int_equal(ga_division_cuts(&d, i)[2], owned[i].n);
        }
        assert_int_equal(d.own.count, 2);
        assert_int_equal(d.own.pieces[0].n + d.own.pieces[1].n, rank == 0 ? 130 : 100);
        assert_int_equal(d.others.count, 2);
        ga_division_close(&d);
    }
}

/* Parameters a, b.0 and b.1; an array of the second, and one with two numbers for each. */
static const ga_param PARAMS[] = {
    {"a", 0, 1, 1, {90}, 0, 0, 90},
    {"b.%d", 0, 2, 1, {80}, 112, 80, 80},
};
static const ga_param OF_B[] = {{"b.%d", 0, 2, 1, {80}, 0, 96, 80}};
static const ga_param FEW[] = {{"b.%d", 0, 2, 1, {2}, 16, 16, 2}, {"a", 0, 1, 1, {2}, 0, 0, 2}};

static void shards_of_arrays(void **state) {
    (void)state;
    ga_piece pieces[] = {{0, 40, 0}, {130, 110, 48}};
    const ga_shard own = {pieces, 2, 158};
    ga_shard s;
    assert_int_equal(ga_layout_shard(&s, &own, PARAMS, 2, OF_B, 1, NULL), 0);
    assert_int_equal(s.count, 2); /* 130..191 of b.0, 192..239 of b.1 */
    assert_true(s.pieces[0].from == 18 && s.pieces[0].n == 62 && s.pieces[0].at == 0);
    assert_true(s.pieces[1].from == 96 && s.pieces[1].n == 48 && s.pieces[1].at == 64);
    assert_int_equal(s.elements, 112);
    ga_shard_close(&s);
    assert_int_equal(ga_layout_shard(&s, &own, PARAMS, 2, FEW, 2, NULL), 0);
    assert_int_equal(s.count, 2); /* with the first elements of a and of b.1 */
    assert_true(s.pieces[0].from == 0 && s.pieces[0].n == 2);
    assert_true(s.pieces[1].from == 32 && s.pieces[1].n == 2);
    ga_shard_close(&s);
}

/* A weight of 40 elements, which takes 48 and travels in 16 bits, and two vectors of 16: rank 0 has the weight's first
 * 32 elements, rank 1 its last ones and the vectors. Another bucket has nothing of 16 bits. */
static void words_of_parameters(void **state) {
    (void)state;
    static const ga_bucket buckets[] = {{0, 80, GA_REDUCE_SCATTER, GA_F32, GA_BY_ELEMENT},
                                        {80, 32, GA_REDUCE_SCATTER, GA_F32, GA_BY_ELEMENT}};
    static const ga_param params[] = {{"w", 0, 1, 1, {40}, 0, 0, 40}, {"b.%d", 0, 2, 1, {16}, 48, 16, 16},
                                      {"v", 0, 1, 1, {32}, 80, 0, 32}};
    static const bool halves[] = {true, false, false};
    for (int rank = 0; rank < 2; rank++) {
        ga_division d;
        ga_sent s;
        float own[64];
        uint16_t words[128] = {0};
        for (int i = 0; i < 64; i++) own[i] = 1.0f + (float)i / 1024;
        assert_int_equal(ga_division_open(&d, buckets, 2, NULL, 0, rank, 2, NULL), 0);
        assert_int_equal(ga_sent_open(&s, &d, params, halves, 3, GA_BF16, NULL), 0);
        const int64_t *cuts = ga_sent_cuts(&s, 0);
        assert_true(cuts[0] == 0 && cuts[1] == 32 && cuts[2] == 48 + 2 * 32);
        assert_null(ga_sent_cuts(&s, 1));
        assert_int_equal(s.words, rank == 0 ? 32 : 16 + 2 * 32);
        assert_int_equal(s.count, rank == 0 ? 1 : 2);
        for (int i = 0; i < s.count; i++) ga_sent_pack(&s, i, own, words);
        for (int i = 0; i < (rank == 0 ? 32 : 16); i++) assert_int_equal(words[i], bf16_narrow(own[i]).bits);
        if (rank == 1) assert_memory_equal(words + 16, own + 16, sizeof(float) * 32);
        ga_sent_close(&s);
        ga_division_close(&d);
    }
}

int test_shard(void);
int test_shard(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers),
        cmocka_unit_test(cuts),
        cmocka_unit_test(owners_of_buckets),
        cmocka_unit_test(shards_of_arrays),
        cmocka_unit_test(words_of_parameters),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
