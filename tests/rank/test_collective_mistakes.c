// SPDX-License-Identifier: Apache-2.0
// Deliberate errors of collectives: each breaks a rule and is diagnosed.
#include "tests/support/runner.h"

#include <stdio.h>
#include <string.h>

#include "judge/collective_diagnosis.h"
#include "tests/rank/collective_scene.h"

#define WORLD 4
#define COUNT 400
#define RANK  1 // the rank with the judged result

static struct collective asked(enum collective_operation operation,
                               enum collective_algorithm algorithm)
{
    struct collective c = scene_usual();
    c.operation = operation;
    c.algorithm = algorithm;
    c.world_size = WORLD;
    c.count = COUNT;
    return c;
}

// ---- changes of plans ----

// The n-th operation of a kind.
static struct op *op_at(struct scene *s, int rank, enum op_kind kind, int n)
{
    struct plan *plan = s->plans[rank];
    for (int i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == kind && n-- == 0)
            return &plan->ops[i];
    ck_abort_msg("no operation");
    return NULL;
}

static struct transfer *transfer_of(struct scene *s, int rank, int peer, bool send)
{
    struct plan *plan = s->plans[rank];
    for (int i = 0; i < plan->transfer_count; i++) {
        struct transfer *t = &plan->transfers[i];
        if (t->peer == peer && (send ? t->send.bytes : t->receive.bytes) > 0)
            return t;
    }
    ck_abort_msg("no transfer");
    return NULL;
}

static void none(struct scene *s)
{
    (void)s;
}

// In a direct reduce_scatter the parts are added in the order of the other ranks.
static void drop_rank_2(struct scene *s)
{
    op_at(s, RANK, OP_REDUCE, 1)->operand[UNARY_DESTINATION].bytes = 0;
}

static void drop_others(struct scene *s)
{
    for (int i = 0; i < WORLD - 1; i++)
        op_at(s, RANK, OP_REDUCE, i)->operand[UNARY_DESTINATION].bytes = 0;
}

// The first part is that of rank 0.
static void add_first_twice(struct scene *s)
{
    s->twice = RANK;
}

static void divide_by_one_more(struct scene *s)
{
    op_at(s, RANK, OP_DIVIDE, 0)->value += 1;
}

static void swap_receives(struct scene *s)
{
    struct transfer *a = transfer_of(s, RANK, 0, false), *b = transfer_of(s, RANK, 3, false);
    struct region kept = a->receive;
    a->receive = b->receive;
    b->receive = kept;
}

static void shift_receive(struct scene *s)
{
    struct plan *plan = s->plans[RANK];
    int64_t element = collective_element_bytes(s->c.dtype);
    for (int i = 0; i < plan->transfer_count; i++) {
        struct region *r = &plan->transfers[i].receive;
        if (r->bytes == 0)
            continue;
        r->offset += element;
        r->bytes -= element;
    }
}

static void lose_exchanges(struct scene *s)
{
    struct plan *plan = s->plans[RANK];
    for (int i = 0; i < plan->transfer_count; i++)
        plan->transfers[i].receive.bytes = 0;
}

static void zero_source(struct scene *s)
{
    int root = s->c.root;
    memset(s->send[root], 0, (size_t)(COUNT * collective_element_bytes(s->c.dtype)));
}

static void turn_ring(struct scene *s)
{
    for (int rank = 0; rank < WORLD; rank++)
        for (int i = 0; i < s->plans[rank]->transfer_count; i++) {
            struct transfer *t = &s->plans[rank]->transfers[i];
            if (t->peer != rank)
                t->peer = (2 * rank - t->peer + WORLD) % WORLD;
        }
}

// Each peer gets the block of the rank after it.
static void send_next_blocks(struct scene *s)
{
    for (int rank = 0; rank < WORLD; rank++)
        for (int i = 0; i < s->plans[rank]->transfer_count; i++) {
            struct transfer *t = &s->plans[rank]->transfers[i];
            int64_t block = COUNT * collective_element_bytes(s->c.dtype);
            if (t->send.bytes > 0)
                t->send.offset = (t->peer + 1) % WORLD * block;
        }
}

// ---- the errors ----

struct mistake {
    const char *name;
    struct collective c;  // the judged collective
    struct collective of; // the executed collective; world_size 0: the same
    void (*change)(struct scene *s);
    enum collective_mistake kind;
    const char *text;
};

#define MISTAKES 17

static struct collective with_reduction(struct collective c, enum collective_reduction reduction)
{
    c.reduction = reduction;
    return c;
}

static struct collective with_root(struct collective c, int root)
{
    c.root = root;
    return c;
}

static void mistakes_fill(struct mistake list[MISTAKES])
{
    struct collective scatter = asked(COLLECTIVE_REDUCE_SCATTER, ALGORITHM_DIRECT);
    struct collective ring = asked(COLLECTIVE_ALL_REDUCE, ALGORITHM_RING);
    struct collective gather = asked(COLLECTIVE_ALL_GATHER, ALGORITHM_DIRECT);
    struct collective all = asked(COLLECTIVE_ALL_TO_ALL, ALGORITHM_DIRECT);
    struct collective cast = asked(COLLECTIVE_BROADCAST, ALGORITHM_DIRECT);
    struct collective pass = asked(COLLECTIVE_SEND_RECEIVE, ALGORITHM_DIRECT);
    struct collective none_of = {.world_size = 0};
    const struct mistake made[MISTAKES] = {
        {"RANK_LOST", scatter, none_of, drop_rank_2, MISTAKE_RANK_MISSING,
         "rank 2 is missing from the sum"},
        {"OTHERS_LOST", scatter, none_of, drop_others, MISTAKE_RANK_ALONE,
         "only rank 1 is in the sum"},
        {"PART_TWICE", scatter, none_of, add_first_twice, MISTAKE_RANK_TWICE,
         "rank 0 is in the sum twice"},
        {"SUM_NOT_AVERAGED", with_reduction(ring, REDUCTION_AVG),
         with_reduction(ring, REDUCTION_SUM), none, MISTAKE_NOT_DIVIDED,
         "the sum is not divided by the number of ranks"},
        {"SUM_AVERAGED", ring, with_reduction(ring, REDUCTION_AVG), none, MISTAKE_WORLD_FACTOR,
         "the sum is 4 times too small"},
        {"WRONG_DIVISOR", with_reduction(scatter, REDUCTION_AVG), none_of, divide_by_one_more,
         MISTAKE_DIVISOR, "the sum is divided by 5 instead of 4"},
        {"MIN_FOR_MAX", with_reduction(ring, REDUCTION_MAX), with_reduction(ring, REDUCTION_MIN),
         none, MISTAKE_REDUCTION, "it is the minimum instead of the maximum"},
        {"PRODUCT_LOST_RANK", with_reduction(scatter, REDUCTION_PROD), none_of, drop_rank_2,
         MISTAKE_RANK_MISSING, "rank 2 is missing from the product"},
        {"WRONG_ROOT", with_root(cast, 3), with_root(cast, 2), none, MISTAKE_WRONG_RANK,
         "the elements are those of rank 2 instead of rank 3"},
        {"RING_TURNED", pass, none_of, turn_ring, MISTAKE_WRONG_RANK,
         "the elements are those of rank 2 instead of rank 0"},
        {"BLOCKS_SWAPPED", gather, none_of, swap_receives, MISTAKE_BLOCKS_SWAPPED,
         "the blocks of ranks 0 and 3 are swapped"},
        {"SHARDS_SWAPPED", all, none_of, swap_receives, MISTAKE_BLOCKS_SWAPPED,
         "the blocks of ranks 0 and 3 are swapped"},
        {"NEXT_BLOCK", scatter, none_of, send_next_blocks, MISTAKE_WRONG_BLOCK,
         "the elements are those of rank 2's result"},
        {"BLOCK_SHIFTED", pass, none_of, shift_receive, MISTAKE_SHIFTED,
         "the elements are 1 place too far right"},
        {"NOT_RECEIVED", pass, none_of, lose_exchanges, MISTAKE_UNTOUCHED,
         "the memory was never written"},
        {"ZEROS_SENT", cast, none_of, zero_source, MISTAKE_ZERO, "the elements are zero"},
        {"OTHER_BLOCKS", all, none_of, send_next_blocks, MISTAKE_WRONG_BLOCK,
         "the elements are those of rank 2's result"},
    };
    memcpy(list, made, sizeof(made));
}

// Judges the result of RANK as that of the collective `c`.
static struct figures judged(const struct scene *s, const struct collective *c)
{
    struct figures figures = {.first_bad = {.position = -1}};
    collective_judge_receive(c, RANK, s->receive[RANK], &figures);
    return figures;
}

static void expect_named(const struct mistake *m, const struct scene *s)
{
    struct collective_view v;
    struct collective_sample sample;
    struct diagnosis diagnosis = {.text = ""};
    struct figures figures = judged(s, &m->c);
    ck_assert_msg(figures.broken != 0, "%s is not noticed", m->name);
    collective_view_set(&v, &m->c, RANK);
    collective_sample_choose(&v, figures.first_bad.position, &sample);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = collective_element(&v, s->receive[RANK], sample.index[i]);
    enum collective_mistake kind =
        collective_diagnose(&m->c, RANK, &sample, SCENE_MEMORY, &figures, &diagnosis);
    ck_assert_msg(kind == m->kind && strstr(diagnosis.text, m->text),
                  "%s of %s is called %d, '%s' instead of %d, '%s'", m->name, scene_text(&m->c),
                  (int)kind, diagnosis.text, (int)m->kind, m->text);
    ck_assert_str_eq(diagnosis.name, "receive");
    ck_assert(diagnosis.explained >= 0.9 && diagnosis.explained <= 1);
}

START_TEST(every_error_is_noticed_and_named)
{
    static const enum collective_element elements[] = {ELEMENT_FP32, ELEMENT_BF16, ELEMENT_FP16,
                                                       ELEMENT_INT32, ELEMENT_INT64};
    struct mistake list[MISTAKES];
    mistakes_fill(list);
    for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++) {
        struct mistake m = list[_i];
        struct collective run = m.of.world_size ? m.of : m.c;
        bool whole = elements[e] == ELEMENT_INT32 || elements[e] == ELEMENT_INT64;
        m.c.dtype = run.dtype = elements[e];
        // Integers for averages are drawn from a smaller range.
        if (whole && (m.c.reduction == REDUCTION_AVG) != (run.reduction == REDUCTION_AVG))
            continue;
        struct scene *s = scene_create(&run);
        m.change(s);
        scene_execute(s);
        expect_named(&m, s);
        scene_destroy(s);
    }
}
END_TEST

START_TEST(right_results_have_no_diagnosis)
{
    struct collective c = asked(COLLECTIVE_ALL_REDUCE, ALGORITHM_RING);
    struct collective_view v;
    struct collective_sample sample;
    struct diagnosis diagnosis = {.text = ""};
    struct scene *s = scene_create(&c);
    scene_execute(s);
    struct figures figures = judged(s, &c);
    ck_assert_int_eq(figures.broken, 0);
    collective_view_set(&v, &c, RANK);
    collective_sample_choose(&v, 0, &sample);
    ck_assert_int_gt(sample.count, 200);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = collective_element(&v, s->receive[RANK], sample.index[i]);
    ck_assert_int_eq(collective_diagnose(&c, RANK, &sample, SCENE_MEMORY, &figures, &diagnosis),
                     MISTAKE_NONE);
    ck_assert_str_eq(diagnosis.text, "");
    // A single wrong element has no diagnosis, either.
    sample.got[7].real += 1;
    ck_assert_int_eq(collective_diagnose(&c, RANK, &sample, SCENE_MEMORY, &figures, &diagnosis),
                     MISTAKE_NONE);
    scene_destroy(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective_mistakes");
    TCase *tcase = tcase_create("mistakes");
    tcase_add_loop_test(tcase, every_error_is_noticed_and_named, 0, MISTAKES);
    tcase_add_test(tcase, right_results_have_no_diagnosis);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
