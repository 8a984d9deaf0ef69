// SPDX-License-Identifier: Apache-2.0
// The work of a case compared with a count of all pairs.
#include "plan/cost.h"

#include "tests/support/cases.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

// Floating-point operations of matrix products over all visible pairs. dims: the length of a vector
// in each product.
static double count(const struct cp_case *c, const int *dims, int products)
{
    double sum = 0;
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        for (int64_t i = 0; i < c->seqlen_q; i++)
            for (int64_t j = 0; j < c->seqlen_kv; j++)
                for (int k = 0; k < products && definition_visible(c, sequence, i, j); k++)
                    sum += 2.0 * c->heads * dims[k];
    return sum;
}

START_TEST(operations_are_those_of_visible_pairs)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct cp_case c;
        struct case_cost cost;
        generate_case(seed, 8, 12, &c);
        int qk = c.head_dim_qk, v = c.head_dim_v;
        const int forward[] = {qk, v}, backward[] = {qk, v, v, qk, qk};
        const int reference[] = {qk, v, v, qk, qk, v, v, qk}; // out; dQ; dK and dV
        case_cost(&c, &cost);
        ck_assert_double_eq(cost.forward, count(&c, forward, 2));
        ck_assert_double_eq(cost.backward, c.training ? count(&c, backward, 5) : 0);
        ck_assert_double_eq(cost.reference,
                            c.verify != VERIFY_OFF ? count(&c, reference, c.training ? 8 : 2) : 0);
    }
}
END_TEST

START_TEST(elements_are_those_of_tokens)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct cp_case c;
        struct case_cost cost;
        double elements = 0;
        generate_case(seed, 8, 40, &c);
        for (int32_t i = 0; i < c.batch; i++) {
            double queries = (double)definition_length(&c, SIDE_Q, i);
            double keys = (double)definition_length(&c, SIDE_KV, i);
            elements += queries * c.heads * c.head_dim_qk;
            elements += c.training ? queries * c.heads * c.head_dim_v : 0;
            elements += keys * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
        }
        case_cost(&c, &cost);
        ck_assert_double_eq(cost.drawn, elements);
    }
}
END_TEST

START_TEST(neither_backward_nor_reference_unless_asked)
{
    struct cp_case c = cases_usual();
    struct case_cost all, some;
    case_cost(&c, &all);
    ck_assert(all.backward > 0 && all.reference > 0);
    c.verify = VERIFY_OFF;
    case_cost(&c, &some);
    ck_assert_double_eq(some.reference, 0);
    ck_assert_double_eq(some.backward, all.backward);
    c.verify = VERIFY_AUTO;
    c.training = false;
    case_cost(&c, &some);
    ck_assert_double_eq(some.backward, 0);
    ck_assert_double_eq(some.reference, all.forward);
    ck_assert(some.drawn < all.drawn);
}
END_TEST

// Counts too large for a loop over tokens, and for 64 bits.
START_TEST(the_largest_case_is_counted)
{
    struct cp_case c = cases_usual();
    struct case_cost cost;
    c.batch = BATCH_MAX;
    c.heads = c.kv_heads = HEADS_MAX;
    c.head_dim_qk = c.head_dim_v = HEAD_DIM_MAX;
    c.seqlen_q = c.seqlen_kv = SEQLEN_MAX;
    c.mask = MASK_NONE;
    case_cost(&c, &cost);
    ck_assert_int_eq(cost_pairs(&c), BATCH_MAX * SEQLEN_MAX * SEQLEN_MAX);
    ck_assert_double_eq(cost.forward, 0x1p60 * 0x1p12 * 2 * 512);
    c.mask = MASK_CAUSAL;
    ck_assert_int_eq(cost_pairs(&c), BATCH_MAX * (SEQLEN_MAX * (SEQLEN_MAX + 1) / 2));
    c.window_left = 0;
    ck_assert_int_eq(cost_pairs(&c), BATCH_MAX * SEQLEN_MAX);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("all");
    tcase_add_test(all, operations_are_those_of_visible_pairs);
    tcase_add_test(all, elements_are_those_of_tokens);
    tcase_add_test(all, neither_backward_nor_reference_unless_asked);
    tcase_add_test(all, the_largest_case_is_counted);
    Suite *suite = suite_create("cost");
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
