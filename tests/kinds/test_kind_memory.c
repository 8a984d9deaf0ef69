// SPDX-License-Identifier: Apache-2.0
// Collectives and layers are admitted with enough memory for their plans.
#include "tests/support/runner.h"

#include <string.h>

#include "plan/plan.h"
#include "tests/kinds/random_jobs.h"

static struct error error;

// Bytes of the plan's buffers with their guards.
static int64_t plan_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->buffer_count; i++)
        bytes += plan->buffers[i].before + plan->buffers[i].bytes + plan->buffers[i].after;
    return bytes;
}

static int64_t admitted(const struct linear *l)
{
    int64_t bytes = 0;
    ck_assert_int_eq(job_kind_linear.memory(l, &bytes, &error), STATUS_OK);
    return bytes;
}

START_TEST(collectives_fit)
{
    random_jobs_seed(1);
    for (int i = 0; i < 1000; i++) {
        struct collective c = random_collective();
        struct plan *plan;
        int64_t bytes;
        ck_assert_int_eq(job_kind_collective.memory(&c, &bytes, &error), STATUS_OK);
        for (int rank = 0; rank < c.world_size; rank++) {
            ck_assert_int_eq(collective_plan(&c, rank, &plan, &error), STATUS_OK);
            ck_assert_int_le(plan_bytes(plan), bytes);
            plan_destroy(plan);
        }
    }
}
END_TEST

// Collectives with large counts: constant terms of the bound do not matter.
START_TEST(collectives_of_every_algorithm_fit)
{
    static const int worlds[] = {2, 3, 7, 8, 9, 64};
    int fit = 0;
    for (int i = 0; i < 6 * (COLLECTIVE_OPERATIONS - 1) * 2 * (ALGORITHM_NCCL - 1); i++) {
        struct collective c;
        struct plan *plan;
        int64_t bytes;
        memset(&c, 0, sizeof(c));
        job_kind_collective.init(&c);
        c.count = 3000001;
        c.world_size = worlds[i % 6];
        c.in_place = i / 6 % 2;
        c.algorithm = (enum collective_algorithm)(1 + i / 12 % (ALGORITHM_NCCL - 1));
        c.operation = (enum collective_operation)(1 + i / 12 / (ALGORITHM_NCCL - 1) %
                                                          (COLLECTIVE_OPERATIONS - 1));
        if (job_kind_collective.check(&c, NULL) != STATUS_OK)
            continue;
        ck_assert_int_eq(job_kind_collective.memory(&c, &bytes, &error), STATUS_OK);
        for (int rank = 0; rank < c.world_size; rank++) {
            ck_assert_int_eq(collective_plan(&c, rank, &plan, &error), STATUS_OK);
            ck_assert_msg(plan_bytes(plan) <= bytes, "operation %d, algorithm %d, %d ranks",
                          (int)c.operation, (int)c.algorithm, c.world_size);
            plan_destroy(plan);
        }
        fit++;
    }
    ck_assert_int_gt(fit, 100);
}
END_TEST

START_TEST(layers_fit)
{
    random_jobs_seed(2);
    for (int i = 0; i < 1000; i++) {
        struct linear l = random_linear();
        struct plan *plan;
        l.verify = false;
        for (int rank = 0; rank < l.world_size; rank++) {
            ck_assert_int_eq(linear_plan(&l, rank, &plan, &error), STATUS_OK);
            ck_assert_int_le(plan_bytes(plan) + linear_wide_bytes(plan), admitted(&l));
            plan_destroy(plan);
        }
    }
}
END_TEST

static struct linear layer(int64_t side, bool bias)
{
    struct linear l;
    memset(&l, 0, sizeof(l));
    job_kind_linear.init(&l);
    job_kind_linear.finish(&l);
    l.tokens = l.in_features = l.hidden = l.out_features = side;
    l.bias = bias;
    return l;
}

static int64_t wide_bytes(const struct linear *l)
{
    struct plan *plan;
    ck_assert_int_eq(linear_plan(l, 0, &plan, &error), STATUS_OK);
    int64_t bytes = linear_wide_bytes(plan);
    plan_destroy(plan);
    return bytes;
}

// A product with a bias and an odd side needs room in fp32, up to a limit. Without a bias, or with
// sides that are whole vectors, it needs none.
START_TEST(odd_products_with_a_bias_need_room)
{
    struct linear even = layer(1024, true), odd = layer(1023, true), none = layer(1023, false);
    struct linear large = layer(8191, true);
    ck_assert_int_eq(wide_bytes(&even), 0);
    ck_assert_int_eq(wide_bytes(&none), 0);
    ck_assert_int_eq(wide_bytes(&odd), 4 * 1023 * 512);
    ck_assert_int_eq(wide_bytes(&large), PRODUCT_WIDE_MAX);
    ck_assert_int_ge(admitted(&odd) - admitted(&none), wide_bytes(&odd));
}
END_TEST

// The memory of a judge depends on the size of the layer. 64 ranks with a small layer need little.
START_TEST(a_small_layer_needs_little)
{
    struct linear l = layer(64, true);
    l.world_size = 64;
    ck_assert_int_le(admitted(&l), 4 << 20);
    struct linear large = layer(4096, true);
    struct linear unjudged = large;
    unjudged.verify = false;
    ck_assert_int_ge(admitted(&large) - admitted(&unjudged), 64 << 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kind_memory");
    TCase *tcase = tcase_create("kind_memory");
    tcase_add_test(tcase, collectives_fit);
    tcase_add_test(tcase, collectives_of_every_algorithm_fit);
    tcase_add_test(tcase, layers_fit);
    tcase_add_test(tcase, odd_products_with_a_bias_need_room);
    tcase_add_test(tcase, a_small_layer_needs_little);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
