// SPDX-License-Identifier: Apache-2.0
// Changes of plans: the checker or the symbolic run notices each.
#include <string.h>

#include "plan/plan.h"
#include "tests/mutations/edit.h"
#include "tests/mutations/mutations.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"
#include "tests/support/symbolic.h"

static const char *const in_schedule[] = {
    "DROP_STEP",           "MASK_OFF_BY_ONE",    "SWAP_CHUNKS",         "DK_WRONG_OWNER",
    "DROP_DQ_STEP",        "DROP_DKV_ADD",       "LSE_PARTIAL",         "STALE_SLOT",
    "HOP_DROPS_CHUNK",     "RANKS_SWAPPED",      "QUERY_CHUNK_LOST",    "KEY_DROPPED",
    "STALE_RING_KV",       "OWN_ATTENDED_TWICE", "BACKWARD_STEP_TWICE", "WORLD_FACTOR",
    "D_TOO_EARLY",         "OUT_TOO_EARLY",      "DKV_TOO_EARLY",       "DK_ONE_HOP_SHORT",
    "SENT_CHUNKS_SWAPPED",
};

// Mutations that need a certain comm or input.
static const struct elsewhere {
    const char *mutation;
    enum case_comm comm;
    enum case_bias bias;
    enum case_softmax softmax;
} elsewhere[] = {
    {"GATHER_DROP_PART", COMM_ALL_GATHER, BIAS_NONE, SOFTMAX_VANILLA},
    {"KV_TRANSPOSED", COMM_ALL_GATHER, BIAS_NONE, SOFTMAX_VANILLA},
    {"OUT_HOME_TURNED", COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {"LSE_HOME_TURNED", COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {"DQ_HOME_TURNED", COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {"OFF_BY_ONE_DROPPED", COMM_A2A, BIAS_NONE, SOFTMAX_OFF_BY_ONE},
    {"SINK_GRAD_TWICE", COMM_ALL_GATHER, BIAS_NONE, SOFTMAX_LEARNABLE},
    {"DBIAS_TWICE", COMM_P2P, BIAS_1H1S, SOFTMAX_VANILLA},
    {"DBIAS_TWO_ZEROED", COMM_A2A, BIAS_1H1S, SOFTMAX_VANILLA},
    {"A2A_WRONG_HEADS", COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {"A2A_DROP_MEMBER", COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {"SINK_DROPPED", COMM_P2P, BIAS_NONE, SOFTMAX_LEARNABLE},
    {"SINK_DROPPED", COMM_A2A, BIAS_NONE, SOFTMAX_OFF_BY_ONE},
    {"SUM_DROPS_RANK", COMM_P2P, BIAS_NONE, SOFTMAX_LEARNABLE},
    {"BIAS_LOCAL_COLUMN", COMM_ALL_GATHER, BIAS_11SS, SOFTMAX_VANILLA},
    {"DBIAS_DROPS_RANK", COMM_P2P, BIAS_1H1S, SOFTMAX_VANILLA},
    {"DBIAS_DROPS_RANK", COMM_A2A, BIAS_B1SS, SOFTMAX_VANILLA},
};

static const enum case_sharding shardings[] = {SHARDING_ZIGZAG, SHARDING_CONTIGUOUS};

static void even_case(int world_size, struct cp_case *c)
{
    plans_even_case(world_size, c);
    c->head_dim_qk = 2;
    c->head_dim_v = 1;
}

// The checker accepts these plans: they are ordered, matched and complete. Only the computed values
// show the error.
START_TEST(wrong_schedule_shows_in_the_outputs)
{
    mutation_set(mutation_find(in_schedule[_i]));
    for (int world_size = 2; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(!symbolic_run(p.plans, 1, why), "not noticed on %d ranks", world_size);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(wrong_extras_show_in_the_outputs)
{
    const struct elsewhere *e = &elsewhere[_i];
    mutation_set(mutation_find(e->mutation));
    for (int world_size = 2; world_size <= 4; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        c.comm = e->comm;
        c.bias = e->bias;
        c.softmax = e->softmax;
        c.heads = c.kv_heads = world_size; // one for each rank
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(!symbolic_run(p.plans, 1, why), "not noticed on %d ranks", world_size);
        mutation_set(NULL);
        plans_destroy(&p);
        plans_create(&p, &c);
        ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
        mutation_set(mutation_find(e->mutation));
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(missing_wait_is_a_race)
{
    mutation_set(mutation_find("MISSING_WAIT"));
    for (int world_size = 2; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        struct error error = {.text = ""};
        even_case(world_size, &c);
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, &error), STATUS_INTERNAL);
        ck_assert_pstr_eq(strstr(error.text, "nothing orders them"), "nothing orders them");
        plans_destroy(&p);
    }
}
END_TEST

// Some explored order shows the race in the outputs, too.
START_TEST(missing_wait_shows_in_some_order)
{
    struct cp_case c;
    struct plans p;
    char why[ERROR_TEXT_MAX];
    int wrong = 0;
    mutation_set(mutation_find("MISSING_WAIT"));
    even_case(3, &c);
    plans_create(&p, &c);
    for (uint64_t seed = 0; seed < 50; seed++)
        wrong += !symbolic_run(p.plans, seed, why);
    ck_assert_int_gt(wrong, 0);
    plans_destroy(&p);
}
END_TEST

START_TEST(without_a_mutation_all_is_well)
{
    mutation_set(NULL);
    for (int world_size = 1; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        c.sharding = shardings[world_size % 2];
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
        plans_destroy(&p);
    }
}
END_TEST

// ---- changes of a plan ---------------

// Compares field by field, because padding between fields may differ.
static bool same_region(const struct region *a, const struct region *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->bytes == b->bytes &&
           a->rows == b->rows && a->stride == b->stride && a->blocks == b->blocks &&
           a->block_stride == b->block_stride;
}

static bool same_op(const struct op *a, const struct op *b)
{
    bool same = a->kind == b->kind && a->stream == b->stream && a->phase == b->phase &&
                a->step == b->step && a->q_rows == b->q_rows && a->bias_rows == b->bias_rows &&
                a->value == b->value && memcmp(&a->heads, &b->heads, sizeof a->heads) == 0 &&
                a->slice_first == b->slice_first && a->slice_count == b->slice_count &&
                a->transfer_first == b->transfer_first && a->transfer_count == b->transfer_count &&
                a->wait_first == b->wait_first && a->wait_count == b->wait_count;
    for (int i = 0; i < OPERANDS_MAX; i++)
        same = same && same_region(&a->operand[i], &b->operand[i]);
    return same;
}

static void expect_same_plan(const struct plan *a, const struct plan *b)
{
    ck_assert_int_eq(a->buffer_count, b->buffer_count);
    ck_assert_int_eq(a->op_count, b->op_count);
    ck_assert_int_eq(a->slice_count, b->slice_count);
    ck_assert_int_eq(a->transfer_count, b->transfer_count);
    ck_assert_int_eq(a->wait_count, b->wait_count);
    for (int32_t i = 0; i < a->op_count; i++)
        ck_assert(same_op(&a->ops[i], &b->ops[i]));
    for (int32_t i = 0; i < a->transfer_count; i++)
        ck_assert(a->transfers[i].peer == b->transfers[i].peer &&
                  same_region(&a->transfers[i].send, &b->transfers[i].send) &&
                  same_region(&a->transfers[i].receive, &b->transfers[i].receive));
    for (int32_t i = 0; i < a->slice_count; i++) // a slice has no padding
        ck_assert_mem_eq(&a->slices[i], &b->slices[i], sizeof a->slices[i]);
    for (int32_t i = 0; i < a->wait_count; i++)
        ck_assert_int_eq(a->waits[i], b->waits[i]);
}

// edit_finish() does not change a plan that is not edited.
START_TEST(an_unchanged_plan_stays_the_same)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct cp_case c;
        struct plans p;
        plans_any_case(seed, 40, &c);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++) {
            struct plan *again;
            ck_assert_int_eq(plan_create(&c, rank, &again, NULL), STATUS_OK);
            edit_finish(&again);
            expect_same_plan(p.plans[rank], again);
            plan_destroy(again);
        }
        plans_destroy(&p);
    }
}
END_TEST

static bool as_it_is(struct rectangle *r)
{
    (void)r;
    return true;
}

START_TEST(unchanged_rectangles_give_the_same_results)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        plans_small_case(seed, &c);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++) {
            edit_rectangles(p.plans[rank], as_it_is);
            edit_finish(&p.plans[rank]);
        }
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(symbolic_run(p.plans, seed, why), "seed %d: %s", (int)seed, why);
        plans_destroy(&p);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan_mutations");
    TCase *t = tcase_create("mutations");
    tcase_add_loop_test(t, wrong_schedule_shows_in_the_outputs, 0,
                        sizeof in_schedule / sizeof in_schedule[0]);
    tcase_add_loop_test(t, wrong_extras_show_in_the_outputs, 0,
                        sizeof elsewhere / sizeof elsewhere[0]);
    tcase_add_test(t, missing_wait_is_a_race);
    tcase_add_test(t, missing_wait_shows_in_some_order);
    tcase_add_test(t, without_a_mutation_all_is_well);
    tcase_add_test(t, an_unchanged_plan_stays_the_same);
    tcase_add_test(t, unchanged_rectangles_give_the_same_results);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
