// SPDX-License-Identifier: Apache-2.0
// The builder with random operations on random byte ranges of a few buffers. Exchanges are messages
// of one rank to itself. The independent checker decides.
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define BUFFERS      3
#define BUFFER_BYTES 64
#define MESSAGES_MAX 3

// A case without tokens: inputs and outputs are empty, so any operations are allowed.
static struct builder *begin(int32_t buffers[BUFFERS])
{
    struct cp_case c;
    case_init(&c);
    c.world_size = 1;
    c.dtype = DTYPE_FP32;
    c.seqlen_q = c.seqlen_kv = 0;
    c.training = false;
    struct builder *b = builder_create(&c, 0);
    ck_assert_ptr_nonnull(b);
    const enum buffer_role roles[] = {BUFFER_INPUT_Q, BUFFER_INPUT_KV, BUFFER_OUT, BUFFER_LSE};
    for (int i = 0; i < 4; i++)
        builder_buffer(b, "empty", roles[i], 0);
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = builder_buffer(b, "buffer", BUFFER_SCRATCH, BUFFER_BYTES);
        builder_fill(b, (struct region){.buffer = buffers[i], .bytes = BUFFER_BYTES}, 0);
    }
    return b;
}

static struct plan *end(struct builder *b)
{
    struct plan *plan = NULL;
    ck_assert_int_eq(builder_finish(b, &plan, NULL), STATUS_OK);
    builder_destroy(b);
    return plan;
}

static struct region random_region(uint64_t *state, const int32_t *buffers, int64_t bytes)
{
    int32_t buffer = buffers[generate_below(state, BUFFERS)];
    int64_t places = (BUFFER_BYTES - bytes) / 4 + 1;
    return (struct region){
        .buffer = buffer, .offset = 4 * generate_below(state, places), .bytes = bytes};
}

static bool overlap(const struct region *a, const struct region *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

// Draws `count` regions of the same length that do not overlap.
static void random_regions(uint64_t *state, const int32_t *buffers, struct region *regions,
                           int count)
{
    int64_t bytes = 4 * (1 + generate_below(state, 4));
    for (int i = 0; i < count; i++) {
        bool free = false;
        while (!free) {
            regions[i] = random_region(state, buffers, bytes);
            free = true;
            for (int k = 0; k < i; k++)
                free = free && !overlap(&regions[i], &regions[k]);
        }
    }
}

static void random_exchange(uint64_t *state, struct builder *b, const int32_t *buffers)
{
    struct region regions[2 * MESSAGES_MAX];
    struct transfer transfers[2 * MESSAGES_MAX];
    int messages = 1 + (int)generate_below(state, MESSAGES_MAX);
    random_regions(state, buffers, regions, 2 * messages);
    for (int i = 0; i < messages; i++)
        transfers[i] = (struct transfer){.send = regions[i], .receive = regions[messages + i]};
    builder_exchange(b, transfers, messages);
}

static void random_operation(uint64_t *state, struct builder *b, const int32_t *buffers)
{
    struct region regions[2];
    random_regions(state, buffers, regions, 2);
    switch (generate_below(state, 5)) {
    case 0:
        builder_fill(b, regions[0], 1);
        break;
    case 1:
        builder_add(b, regions[0], regions[1]);
        break;
    case 2:
        builder_convert(b, regions[0], regions[1]);
        break;
    default:
        random_exchange(state, b, buffers);
    }
}

static struct plan *random_plan(uint64_t seed)
{
    int32_t buffers[BUFFERS];
    uint64_t state = seed;
    struct builder *b = begin(buffers);
    int count = 5 + (int)generate_below(&state, 40);
    for (int i = 0; i < count; i++)
        random_operation(&state, b, buffers);
    return end(b);
}

START_TEST(random_plans_have_no_race)
{
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct plan *plan = random_plan(seed);
        struct error error = {.text = ""};
        if (plan_check(&plan, 1, &error) != STATUS_OK)
            ck_abort_msg("seed %llu: %s", (unsigned long long)seed, error.text);
        plan_destroy(plan);
    }
}
END_TEST

START_TEST(random_plans_need_every_wait)
{
    int waits = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct plan *plan = random_plan(seed);
        for (int32_t i = 0; i < plan->op_count; i++) {
            struct op *op = &plan->ops[i];
            if (op->wait_count == 0)
                continue;
            op->wait_count--;
            if (plan_check(&plan, 1, NULL) != STATUS_INTERNAL)
                ck_abort_msg("seed %llu: operation %d need not wait", (unsigned long long)seed, i);
            op->wait_count++;
            waits++;
        }
        plan_destroy(plan);
    }
    ck_assert_int_gt(waits, 5000);
}
END_TEST

START_TEST(empty_operations_are_not_added)
{
    int32_t buffers[BUFFERS];
    struct builder *b = begin(buffers);
    struct region none = {.buffer = buffers[0], .offset = 8},
                  some = {.buffer = buffers[1], .bytes = 8};
    const struct region operand[OPERANDS_MAX] = {[ATTEND_Q] = some};
    builder_fill(b, none, 0);
    builder_add(b, none, none);
    builder_convert(b, none, none);
    const struct heads heads = {.count = 1, .kv_count = 1};
    builder_row_dot(b, heads, 0, none, none, none);
    builder_attend(b, OP_ATTEND_FORWARD, heads, 1, 0, operand, NULL, 0);
    builder_attend(b, OP_ATTEND_BACKWARD, heads, 1, 0, operand, NULL, 0);
    const struct transfer transfers[] = {{.peer = 0}, {.peer = 0, .send = some}, {.peer = 0}};
    builder_exchange(b, transfers, 3);
    builder_exchange(b, transfers, 1); // stays: all ranks must have the same number of exchanges
    struct plan *plan = end(b);
    ck_assert_int_eq(plan->op_count, BUFFERS + 2);
    ck_assert_int_eq(plan->ops[BUFFERS].transfer_count, 1);
    ck_assert_int_eq(plan->ops[BUFFERS + 1].transfer_count, 0);
    ck_assert_int_eq(plan->transfer_count, 1);
    plan_destroy(plan);
}
END_TEST

// Messages between two ranks match in list order.
START_TEST(every_message_is_compared)
{
    int32_t buffers[BUFFERS];
    struct builder *b = begin(buffers);
    const struct transfer transfers[] = {
        {.send = {.buffer = buffers[0], .offset = 0, .bytes = 8}},
        {.send = {.buffer = buffers[0], .offset = 8, .bytes = 4}},
        {.receive = {.buffer = buffers[1], .offset = 0, .bytes = 8}},
        {.receive = {.buffer = buffers[1], .offset = 8, .bytes = 8}},
    };
    builder_exchange(b, transfers, 4);
    struct plan *plan = end(b);
    struct error error = {.text = ""};
    ck_assert_int_eq(plan_check(&plan, 1, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text,
                     "exchange 0: rank 0 sends 4 bytes in its message 1 to rank 0, which "
                     "receives 8");
    plan->transfers[1].send.bytes = 8;
    ck_assert_int_eq(plan_check(&plan, 1, &error), STATUS_OK);
    plan_destroy(plan);
}
END_TEST

START_TEST(long_names_are_cut)
{
    int32_t buffers[BUFFERS];
    struct builder *b = begin(buffers);
    int32_t buffer = builder_buffer(b, "a_name_of_twenty_one_x", BUFFER_SCRATCH, 0);
    struct plan *plan = end(b);
    ck_assert_str_eq(plan->buffers[buffer].name, "a_name_of_twent");
    plan_destroy(plan);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("builder");
    TCase *t = tcase_create("builder");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, random_plans_have_no_race);
    tcase_add_test(t, random_plans_need_every_wait);
    tcase_add_test(t, empty_operations_are_not_added);
    tcase_add_test(t, every_message_is_compared);
    tcase_add_test(t, long_names_are_cut);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
