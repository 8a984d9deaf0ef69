// SPDX-License-Identifier: Apache-2.0
// Plans of a ring: waits, messages, omitted exchanges.
#include <string.h>

#include "plan/shard.h"
#include "plan/sight.h"
#include "plan/tiling.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"
#include "tests/support/symbolic.h"

// ---- the ring ----

START_TEST(ring_forward_overlaps)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(5, &c);
    plans_create(&p, &c);
    const struct plan *plan = p.plans[2];
    for (int step = 0; step < 5; step++) {
        int32_t attend = plans_find(plan, OP_ATTEND_FORWARD, PHASE_FORWARD, step);
        int32_t exchange = plans_find(plan, OP_EXCHANGE, PHASE_FORWARD, step);
        int32_t arrived = plans_find(plan, OP_EXCHANGE, PHASE_FORWARD, step - 1);
        int32_t freed = plans_find(plan, OP_ATTEND_FORWARD, PHASE_FORWARD, step - 1);
        plans_expect_wait(plan, attend, arrived); // not for the exchange of its own step
        if (step == 4)
            ck_assert_int_eq(exchange, -1);
        else
            plans_expect_wait(plan, exchange, step < 2 ? -1 : freed);
    }
    plans_destroy(&p);
}
END_TEST

// The n-th exchange of a phase that receives into a buffer with this prefix of its name.
static int32_t arrival(const struct plan *plan, enum plan_phase phase, const char *name, int n)
{
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        for (int32_t k = 0; op->phase == phase && k < op->transfer_count; k++) {
            const struct region *r = &plan->transfers[op->transfer_first + k].receive;
            if (r->bytes > 0 && strncmp(plan->buffers[r->buffer].name, name, strlen(name)) == 0 &&
                n-- == 0)
                return i;
        }
    }
    return -1;
}

START_TEST(ring_backward_overlaps)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(6, &c);
    plans_create(&p, &c);
    const struct plan *plan = p.plans[2];
    int32_t ready =
        plans_find(plan, OP_ATTEND_BACKWARD, PHASE_BACKWARD, 0); // the sum that goes next
    for (int step = 1; step < 6; step++) {
        int32_t hop = arrival(plan, PHASE_BACKWARD, "dkv_arrived", step - 1);
        int32_t add = plans_find(plan, OP_ADD, PHASE_BACKWARD, step);
        int32_t keys = arrival(plan, PHASE_BACKWARD, "slot", step - 1); // of the step after
        plans_expect_wait(plan, add, hop);
        if (step == 1) // the exchange of keys before it waits for the same operation
            plans_expect_wait(plan, hop, -1);
        else
            plans_expect_wait(plan, hop, ready);
        ready = add;
        if (step > 3) {
            ck_assert_int_eq(keys, -1);
            continue;
        }
        // The keys need the memory of the step before. They do not wait for a sum.
        plans_expect_wait(plan, keys,
                          plans_find(plan, OP_ATTEND_BACKWARD, PHASE_BACKWARD, step - 1));
        ck_assert_int_eq(plan->ops[keys].transfer_count, 2);
        ck_assert_int_lt(keys, hop);
    }
    plans_destroy(&p);
}
END_TEST

START_TEST(ring_sends_no_more_than_it_must)
{
    for (int size = 1; size <= 8; size++) {
        struct cp_case c;
        struct plans p;
        plans_even_case(size, &c);
        plans_create(&p, &c);
        int64_t elements = shard_rows(&c, SIDE_KV, 0) * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
        int64_t kv = elements * case_element_bytes(&c), sums = elements * 4;
        for (int rank = 0; rank < size; rank++) {
            ck_assert_int_eq(plans_sent(p.plans[rank], PHASE_FORWARD), (size - 1) * kv);
            ck_assert_int_eq(plans_sent(p.plans[rank], PHASE_BACKWARD),
                             (size > 3 ? size - 3 : 0) * kv + (size - 1) * sums);
        }
        plans_destroy(&p);
    }
}
END_TEST

static int exchanges_of(const struct plan *plan)
{
    int count = 0;
    for (int32_t i = 0; i < plan->op_count; i++)
        count += plan->ops[i].kind == OP_EXCHANGE;
    return count;
}

static int buffers_named(const struct plan *plan, const char *prefix)
{
    int count = 0;
    for (int32_t i = 0; i < plan->buffer_count; i++)
        count += strncmp(plan->buffers[i].name, prefix, strlen(prefix)) == 0;
    return count;
}

START_TEST(ring_has_the_slots_it_needs)
{
    for (int size = 1; size <= 4; size++) {
        struct cp_case c;
        struct plans p;
        plans_even_case(size, &c);
        plans_create(&p, &c);
        ck_assert_int_eq(buffers_named(p.plans[0], "slot"), size > 2 ? 2 : size - 1);
        ck_assert_int_eq(buffers_named(p.plans[0], "dkv_"), size > 1 ? 3 : 1);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(ring_memory_does_not_grow_with_ranks)
{
    int64_t bytes[2];
    const int sizes[] = {3, WORLD_SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        struct cp_case c;
        struct plans p;
        plans_even_case(sizes[i], &c);
        plans_create(&p, &c);
        bytes[i] = plans_bytes(p.plans[1]);
        struct error error = {.text = ""};
        ck_assert_msg(plan_check(p.plans, p.size, &error) == STATUS_OK, "%s", error.text);
        plans_destroy(&p);
    }
    ck_assert_int_eq(bytes[0], bytes[1]);
}
END_TEST

START_TEST(empty_shards_take_part)
{
    struct cp_case c;
    struct plans p;
    char why[ERROR_TEXT_MAX];
    plans_even_case(8, &c);
    c.seqlen_q = c.seqlen_kv = 3;
    plans_create(&p, &c);
    ck_assert_int_eq(shard_tokens(&c, SIDE_Q, 1, 0), 0);
    // Rank 5 has the first two tokens, rank 0 the last: one hop of keys, one of a sum.
    for (int rank = 0; rank < 8; rank++)
        ck_assert_int_eq(exchanges_of(p.plans[rank]), 2);
    ck_assert_int_eq(plan_check(p.plans, 8, NULL), STATUS_OK);
    ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
    plans_destroy(&p);
}
END_TEST

// ---- contents of the messages ----

// True if there is a slice of the queries of `rank` and the keys of `source`.
static bool sees(const struct cp_case *c, int rank, int source)
{
    struct span q[64], kv[64];
    struct slice slices[1024];
    int q_count = shard_spans(c, SIDE_Q, rank, q), kv_count = shard_spans(c, SIDE_KV, source, kv);
    return tiling_build(c, q, q_count, kv, kv_count, 0, slices) > 0;
}

START_TEST(sight_is_what_slices_say)
{
    int unseen = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c;
        struct sight sight;
        plans_any_case(seed, seed % 2 ? 100 : 20, &c);
        sight_init(&sight, &c, 1);
        for (int rank = 0; rank < c.world_size; rank++)
            for (int source = 0; source < c.world_size; source++) {
                bool seen = sees(&c, rank, source);
                if (sight_has(&sight, rank, source) != seen)
                    ck_abort_msg("seed %d: rank %d and the keys of rank %d", (int)seed, rank,
                                 source);
                unseen += !seen;
            }
    }
    ck_assert_int_gt(unseen, 500);
}
END_TEST

// Number of attention operations of a phase that read a slot.
static int attends_of_slots(const struct plan *plan, enum plan_phase phase)
{
    int count = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        enum op_kind kind = phase == PHASE_FORWARD ? OP_ATTEND_FORWARD : OP_ATTEND_BACKWARD;
        if (op->kind == kind)
            count += strncmp(plan->buffers[op->operand[ATTEND_K].buffer].name, "slot", 4) == 0;
    }
    return count;
}

static int arrivals(const struct plan *plan, enum plan_phase phase, const char *name)
{
    int count = 0;
    while (arrival(plan, phase, name, count) >= 0)
        count++;
    return count;
}

// Each block of keys arrives once. The backward pass finds two blocks in the slots.
START_TEST(ring_brings_the_keys_that_are_seen)
{
    int brought = 0, kept = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c;
        struct plans p;
        plans_any_case(seed, 100, &c);
        if (c.comm != COMM_P2P)
            continue;
        plans_create(&p, &c);
        for (int rank = 0; rank < c.world_size; rank++) {
            const struct plan *plan = p.plans[rank];
            int forward = attends_of_slots(plan, PHASE_FORWARD);
            int backward = attends_of_slots(plan, PHASE_BACKWARD);
            ck_assert_int_eq(arrivals(plan, PHASE_FORWARD, "slot"), forward);
            ck_assert_int_eq(arrivals(plan, PHASE_BACKWARD, "slot"),
                             backward > 2 ? backward - 2 : 0);
            brought += forward;
            kept += backward > 2;
        }
        plans_destroy(&p);
    }
    ck_assert_int_gt(brought, 1000);
    ck_assert_int_gt(kept, 100);
}
END_TEST

static int64_t all_bytes(const struct plans *p, int *exchanges)
{
    int64_t bytes = 0;
    for (int rank = 0; rank < p->size; rank++)
        bytes +=
            plans_sent(p->plans[rank], PHASE_FORWARD) + plans_sent(p->plans[rank], PHASE_BACKWARD);
    *exchanges = exchanges_of(p->plans[0]);
    return bytes;
}

// A window smaller than a chunk: each chunk sees the one before it, on a neighbouring rank.
START_TEST(ring_with_a_window_moves_little)
{
    for (int size = 3; size <= 16; size++) {
        struct cp_case c;
        struct plans p;
        int exchanges;
        plans_even_case(size, &c);
        c.window_left = 5;
        plans_create(&p, &c);
        int64_t elements = shard_rows(&c, SIDE_KV, 0) * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
        // Keys go to both neighbours, sums return through them; the outer ranks have one neighbour.
        int64_t keys = 2 * (size - 1) * elements * case_element_bytes(&c);
        int64_t sums = 2 * (size - 1) * elements * 4;
        ck_assert_int_eq(all_bytes(&p, &exchanges), keys + sums);
        ck_assert_int_eq(exchanges, 4);
        plans_destroy(&p);
    }
}
END_TEST

// Ranks see no keys of later ranks.
START_TEST(contiguous_ring_moves_half)
{
    struct cp_case c;
    struct plans p;
    int exchanges;
    plans_even_case(8, &c);
    c.sharding = SHARDING_CONTIGUOUS;
    plans_create(&p, &c);
    int64_t elements = shard_rows(&c, SIDE_KV, 0) * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
    int hops = 8 * 7 / 2, kept = 7 + 6; // seven ranks see another rank, six see two or more
    ck_assert_int_eq(all_bytes(&p, &exchanges),
                     elements * (case_element_bytes(&c) * (2 * hops - kept) + 4 * hops));
    plans_destroy(&p);
}
END_TEST

// Two sums are enough, because a rank between two others forwards their sums at once.
START_TEST(few_sums_are_enough)
{
    for (int size = 5; size <= 14; size += 3)
        for (int64_t window = 1; window < 16 * size; window += 5) {
            struct cp_case c;
            struct plans p;
            struct error error = {.text = ""};
            char why[ERROR_TEXT_MAX];
            plans_even_case(size, &c);
            c.window_left = window;
            plans_create(&p, &c);
            ck_assert_int_eq(buffers_named(p.plans[0], "dkv_part"), 2);
            if (plan_check(p.plans, size, &error) != STATUS_OK)
                ck_abort_msg("%d ranks, window %d: %s", size, (int)window, error.text);
            if (size <= 8 && !symbolic_run(p.plans, 1, why))
                ck_abort_msg("%d ranks, window %d: %s", size, (int)window, why);
            plans_destroy(&p);
        }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan_ring");
    TCase *ring = tcase_create("ring");
    tcase_add_test(ring, ring_forward_overlaps);
    tcase_add_test(ring, ring_backward_overlaps);
    tcase_add_test(ring, ring_sends_no_more_than_it_must);
    tcase_add_test(ring, ring_has_the_slots_it_needs);
    tcase_add_test(ring, ring_memory_does_not_grow_with_ranks);
    tcase_add_test(ring, empty_shards_take_part);
    suite_add_tcase(s, ring);
    TCase *passed = tcase_create("passed on");
    tcase_set_timeout(passed, 30);
    tcase_add_test(passed, sight_is_what_slices_say);
    tcase_add_test(passed, ring_brings_the_keys_that_are_seen);
    tcase_add_test(passed, ring_with_a_window_moves_little);
    tcase_add_test(passed, contiguous_ring_moves_half);
    tcase_add_test(passed, few_sums_are_enough);
    suite_add_tcase(s, passed);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
