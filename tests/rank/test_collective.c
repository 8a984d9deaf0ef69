// SPDX-License-Identifier: Apache-2.0
// Collectives in one process. Every plan is proven free of races and deadlocks, executed for all
// ranks, and judged. Deliberate errors are noticed.
#include "tests/support/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/collective.h"
#include "kernels/backend.h"
#include "plan/collective_layout.h"
#include "plan/plan.h"
#include "rank/operations.h"
#include "tests/rank/collective_scene.h"

static struct error error;

// ---- one collective ----

static void assert_right(const struct collective *c)
{
    struct scene *s = scene_create(c);
    int64_t allowed;
    ck_assert_msg(plan_check(s->plans, c->world_size, &error) == STATUS_OK, "%s: %s", scene_text(c),
                  error.text);
    ck_assert_int_eq(job_kind_collective.memory(c, &allowed, &error), STATUS_OK);
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t bytes = 0;
        for (int i = 0; i < s->plans[rank]->buffer_count; i++)
            bytes += s->plans[rank]->buffers[i].bytes;
        ck_assert_msg(bytes + 4096 <= allowed, "%s takes %lld bytes of %lld", scene_text(c),
                      (long long)bytes, (long long)allowed);
    }
    scene_execute(s);
    ck_assert_msg(scene_broken(s) == 0, "%s: rules 0x%x", scene_text(c), (unsigned)scene_broken(s));
    scene_destroy(s);
}

// ---- right results ----

START_TEST(every_operation_and_algorithm_is_right)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 8, 9};
    static const int counts[] = {0, 1, 5, 37, 100};
    struct collective c = scene_usual();
    int made = 0;
    c.operation = (enum collective_operation)_i;
    for (int a = ALGORITHM_AUTO; a < ALGORITHM_NCCL; a++)
        for (int w = 0; w < 7; w++)
            for (int n = 0; n < 5; n++)
                for (int i = 0; i < 2 * ELEMENTS; i++) {
                    c.algorithm = (enum collective_algorithm)a;
                    c.world_size = worlds[w];
                    c.count = counts[n];
                    c.in_place = i % 2;
                    c.dtype = (enum collective_element)(1 + i / 2 % (ELEMENTS - 1));
                    c.reduction = (enum collective_reduction)(1 + (i + n + w) % (REDUCTIONS - 1));
                    c.root = (n + i) % worlds[w];
                    if (!scene_is_possible(&c))
                        continue;
                    assert_right(&c);
                    made++;
                }
    ck_assert_int_gt(made, 300);
}
END_TEST

static int exchanges_of(const struct collective *c)
{
    struct plan *plan;
    int count = 0;
    ck_assert_int_eq(collective_plan(c, 1, &plan, &error), STATUS_OK);
    for (int i = 0; i < plan->op_count; i++)
        count += plan->ops[i].kind == OP_EXCHANGE;
    plan_destroy(plan);
    return count;
}

// Two ranks need one exchange for each piece, three to eight ranks two. More bytes make more
// pieces.
START_TEST(pieces_follow_the_size)
{
    static const struct {
        int world_size, mebibytes, exchanges;
    } rows[] = {{2, 0, 1},    {2, 47, 1},   {2, 48, 2}, {2, 143, 2},  {2, 256, 3},
                {2, 1024, 7}, {2, 9000, 8}, {3, 1, 2},  {4, 64, 2},   {4, 256, 4},
                {8, 16, 2},   {8, 1024, 8}, {9, 1, 16}, {9, 1024, 32}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct collective c = scene_usual();
        c.operation = COLLECTIVE_ALL_REDUCE;
        c.world_size = rows[i].world_size;
        c.count = ((int64_t)rows[i].mebibytes << 18) + (rows[i].mebibytes == 0);
        ck_assert_msg(exchanges_of(&c) == rows[i].exchanges, "%d ranks, %d MiB: %d exchanges",
                      c.world_size, rows[i].mebibytes, exchanges_of(&c));
        int on_one_host = exchanges_of(&c);
        c.nodes = c.world_size; // sums have the same bits on any hosts
        ck_assert_int_eq(exchanges_of(&c), on_one_host);
    }
}
END_TEST

// Number of segments of every sum; 0: chosen by its size.
static int segments_wanted;

int __real_layout_segments(const struct layout *l, int64_t elements);
int __wrap_layout_segments(const struct layout *l, int64_t elements);

int __wrap_layout_segments(const struct layout *l, int64_t elements)
{
    return segments_wanted ? segments_wanted : __real_layout_segments(l, elements);
}

// Small sums, with as many segments as large ones.
START_TEST(any_number_of_segments_is_right)
{
    static const enum collective_operation operations[] = {COLLECTIVE_ALL_REDUCE,
                                                           COLLECTIVE_REDUCE};
    static const int worlds[] = {2, 3, 4, 7}, counts[] = {0, 5, 37, 100};
    struct collective c = scene_usual();
    int made = 0;
    segments_wanted = _i;
    c.operation = COLLECTIVE_ALL_REDUCE;
    ck_assert_int_eq(exchanges_of(&c), _i);
    for (int a = ALGORITHM_RING; a < ALGORITHM_NCCL; a++)
        for (int i = 0; i < 4 * 4 * 2 * 2; i++) {
            c.algorithm = (enum collective_algorithm)a;
            c.world_size = worlds[i % 4];
            c.count = counts[i / 4 % 4];
            c.operation = operations[i / 16 % 2];
            c.in_place = i / 32;
            c.reduction = (enum collective_reduction)(1 + (i + i / 4) % (REDUCTIONS - 1));
            c.root = i % c.world_size;
            if (!scene_is_possible(&c))
                continue;
            assert_right(&c);
            made++;
        }
    ck_assert_int_gt(made, 100);
}
END_TEST

// Large enough for two segments.
START_TEST(large_collectives_are_right)
{
    struct collective c = scene_usual();
    c.operation = COLLECTIVE_ALL_REDUCE;
    c.dtype = ELEMENT_INT64;
    c.reduction = REDUCTION_SUM;
    c.count = (48 << 20) / 8 + 1;
    ck_assert_int_eq(exchanges_of(&c), 2);
    assert_right(&c);
}
END_TEST

static uint64_t random_state;

static int random_below(int bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)bound);
}

START_TEST(random_jobs_are_right)
{
    random_state = 77;
    for (int made = 0; made < 400;) {
        struct collective c = scene_usual();
        c.operation = (enum collective_operation)(1 + random_below(COLLECTIVE_OPERATIONS - 1));
        c.reduction = (enum collective_reduction)(1 + random_below(REDUCTIONS - 1));
        c.dtype = (enum collective_element)(1 + random_below(ELEMENTS - 1));
        c.algorithm = (enum collective_algorithm)(1 + random_below(ALGORITHM_NCCL - 1));
        c.world_size = 1 + random_below(random_below(10) ? 8 : WORLD_SIZE_MAX);
        c.count = random_below(random_below(4) ? 100 : 3000);
        c.root = random_below(c.world_size);
        c.in_place = random_below(2);
        c.seed = (uint64_t)random_below(1 << 30);
        c.specials = c.seed % 2;
        if (!scene_is_possible(&c))
            continue;
        assert_right(&c);
        made++;
    }
}
END_TEST

// ---- deliberate errors -----------

enum wrong {
    WRONG_REDUCTION_LOST,
    WRONG_SHIFTED,
    WRONG_DIVISOR,
    WRONG_RANK_TWICE,
    WRONG_EXCHANGE_LOST,
    WRONG_SEND_WRITTEN,
    WRONG_LAST_ELEMENT,
    WRONGS,
};

static bool receives(const struct plan *plan, const struct op *op)
{
    bool any = false;
    for (int i = 0; i < op->transfer_count; i++)
        any = any || plan->transfers[op->transfer_first + i].receive.bytes > 0;
    return any;
}

// The last operation of a kind. Of exchanges: the last one that receives data.
static struct op *op_find(struct plan *plan, enum op_kind kind)
{
    for (int i = plan->op_count - 1; i >= 0; i--)
        if (plan->ops[i].kind == kind && (kind != OP_EXCHANGE || receives(plan, &plan->ops[i])))
            return &plan->ops[i];
    return NULL;
}

// The destination of the first transfer that receives data from another rank.
static struct region *receive_find(struct plan *plan)
{
    for (int i = 0; i < plan->transfer_count; i++)
        if (plan->transfers[i].receive.bytes > 0 && plan->transfers[i].peer != plan->rank)
            return &plan->transfers[i].receive;
    return NULL;
}

// Changes the plan of a rank; false if there is nothing to change.
static bool plan_spoil(struct scene *s, int rank, enum wrong wrong)
{
    struct plan *plan = s->plans[rank];
    int element = collective_element_bytes(s->c.dtype);
    struct op *op = op_find(plan, wrong == WRONG_DIVISOR         ? OP_DIVIDE
                                  : wrong == WRONG_EXCHANGE_LOST ? OP_EXCHANGE
                                                                 : OP_REDUCE);
    struct region *region = receive_find(plan);
    switch (wrong) {
    case WRONG_REDUCTION_LOST:
        if (op)
            op->operand[UNARY_DESTINATION].bytes = 0;
        return op != NULL;
    case WRONG_SHIFTED: // the data arrive one element too far; the last one is lost
        if (!region || region->bytes < 3 * element)
            return false;
        region->offset += element;
        region->bytes -= element;
        return true;
    case WRONG_DIVISOR:
        if (op)
            op->value += 1;
        return op != NULL;
    case WRONG_RANK_TWICE:
        s->twice = rank;
        return op != NULL;
    case WRONG_EXCHANGE_LOST:
        if (op)
            for (int i = 0; i < op->transfer_count; i++)
                plan->transfers[op->transfer_first + i].receive.bytes = 0;
        return op != NULL;
    default:
        return false;
    }
}

static bool memory_spoil(struct scene *s, int rank, enum wrong wrong)
{
    int64_t bytes = collective_element_bytes(s->c.dtype);
    if (wrong == WRONG_SEND_WRITTEN && s->send[rank] && !s->c.in_place) {
        s->send[rank][0] ^= 1;
        return true;
    }
    if (wrong == WRONG_LAST_ELEMENT && s->receive[rank]) {
        char *last = s->receive[rank] + (collective_receive_count(&s->c, rank) - 1) * bytes;
        last[bytes - 1] ^= 0x40;
        return true;
    }
    return false;
}

START_TEST(wrong_results_are_noticed)
{
    int noticed[WRONGS] = {0};
    random_state = 5;
    for (int tries = 0; tries < 1500; tries++) {
        struct collective c = scene_usual();
        c.operation = (enum collective_operation)(1 + random_below(COLLECTIVE_OPERATIONS - 1));
        c.reduction = (enum collective_reduction)(1 + random_below(REDUCTIONS - 1));
        c.dtype = (enum collective_element)(1 + random_below(ELEMENTS - 1));
        c.algorithm = (enum collective_algorithm)(1 + random_below(ALGORITHM_NCCL - 1));
        c.world_size = 2 + random_below(6);
        c.count = 200 + random_below(200);
        c.root = random_below(c.world_size);
        c.in_place = random_below(2);
        // Minima and maxima do not change when a rank is added twice.
        bool idempotent = c.reduction == REDUCTION_MIN || c.reduction == REDUCTION_MAX;
        enum wrong wrong = (enum wrong)random_below(WRONGS);
        int rank = random_below(c.world_size);
        if (!scene_is_possible(&c) ||
            (wrong == WRONG_RANK_TWICE && (idempotent || c.operation != COLLECTIVE_REDUCE_SCATTER)))
            continue;
        struct scene *s = scene_create(&c);
        bool spoiled = plan_spoil(s, rank, wrong);
        scene_execute(s);
        spoiled = spoiled || memory_spoil(s, rank, wrong);
        if (spoiled)
            ck_assert_msg(scene_broken(s) != 0, "error %d on rank %d of %s", (int)wrong, rank,
                          scene_text(&c));
        noticed[wrong] += spoiled;
        scene_destroy(s);
    }
    for (int wrong = 0; wrong < WRONGS; wrong++)
        ck_assert_msg(noticed[wrong] >= 5, "error %d was made %d times", wrong, noticed[wrong]);
}
END_TEST

// Plans with a missing wait, or with a receive that is shorter than its send.
START_TEST(wrong_plans_are_refused)
{
    int waits = 0;
    for (int a = ALGORITHM_RING; a < ALGORITHM_NCCL; a++) {
        struct collective c = scene_usual();
        c.algorithm = (enum collective_algorithm)a;
        c.world_size = 4;
        struct scene *s = scene_create(&c);
        for (int i = 0; i < s->plans[1]->op_count; i++) {
            struct op *op = &s->plans[1]->ops[i];
            int count = op->wait_count;
            if (count == 0)
                continue;
            op->wait_count = 0;
            ck_assert_int_eq(plan_check(s->plans, 4, &error), STATUS_INTERNAL);
            op->wait_count = count;
            waits++;
        }
        receive_find(s->plans[2])->bytes -= 4;
        ck_assert_int_eq(plan_check(s->plans, 4, &error), STATUS_INTERNAL);
        scene_destroy(s);
    }
    ck_assert_int_gt(waits, 10);
}
END_TEST

// ---- the judge's own limits ----

// A missing rank is noticed for any number of ranks.
START_TEST(a_rank_that_is_missing_shows_at_any_size)
{
    static const int worlds[] = {2, 8, 33, 64};
    for (int w = 0; w < 4; w++)
        for (int element = ELEMENT_FP32; element <= ELEMENT_BF16; element++)
            for (int way = 0; way < 3; way++) {
                struct collective c = scene_usual();
                c.world_size = worlds[w];
                c.dtype = (enum collective_element)element;
                c.count = 512;
                c.algorithm = ALGORITHM_DIRECT;
                c.reduction = way == 0 ? REDUCTION_SUM : way == 1 ? REDUCTION_PROD : REDUCTION_AVG;
                struct scene *s = scene_create(&c);
                plan_spoil(s, 1, WRONG_REDUCTION_LOST);
                scene_execute(s);
                ck_assert_msg(scene_broken(s) != 0, "%s", scene_text(&c));
                scene_destroy(s);
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective");
    TCase *tcase = tcase_create("collective");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_operation_and_algorithm_is_right, COLLECTIVE_ALL_REDUCE,
                        COLLECTIVE_OPERATIONS);
    tcase_add_test(tcase, pieces_follow_the_size);
    tcase_add_loop_test(tcase, any_number_of_segments_is_right, 2, 9);
    tcase_add_test(tcase, large_collectives_are_right);
    tcase_add_test(tcase, random_jobs_are_right);
    tcase_add_test(tcase, wrong_results_are_noticed);
    tcase_add_test(tcase, wrong_plans_are_refused);
    tcase_add_test(tcase, a_rank_that_is_missing_shows_at_any_size);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
