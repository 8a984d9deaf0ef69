// SPDX-License-Identifier: Apache-2.0
// The small parts of a rank: digest, arena, shards of inputs, times of operations.
#include "tests/support/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "judge/cpu/verify.h"
#include "judge/digest.h"
#include "judge/digest_word.h"
#include "plan/plan.h"
#include "rank/inputs.h"
#include "tests/support/cases.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"
#include "tests/support/world.h"

// ---- digest ----

START_TEST(every_bit_counts)
{
    unsigned char data[61];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 37);
    uint64_t digest = digest_add(DIGEST_START, data, sizeof(data));
    ck_assert_uint_eq(digest, digest_add(DIGEST_START, data, sizeof(data)));
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_uint_ne(digest, digest_add(DIGEST_START, data, sizeof(data)));
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    // Length, order and the ends of pieces count, too.
    char zeros[17] = {0};
    ck_assert_uint_ne(digest_add(DIGEST_START, zeros, 16), digest_add(DIGEST_START, zeros, 17));
    ck_assert_uint_ne(digest_add(DIGEST_START, "abcdefghABCDEFGH", 16),
                      digest_add(DIGEST_START, "ABCDEFGHabcdefgh", 16));
    ck_assert_uint_ne(digest_add(digest_add(DIGEST_START, "ab", 2), "c", 1),
                      digest_add(digest_add(DIGEST_START, "a", 1), "bc", 2));
}
END_TEST

// Other code adds up the words in another order and joins the sum to a digest.
START_TEST(words_come_in_any_order)
{
    uint64_t words[9], sum = 0;
    for (uint64_t i = 0; i < 9; i++)
        words[i] = (i + 1) * UINT64_C(0x0123456789abcdef);
    for (uint64_t i = 9; i-- > 0;)
        sum += digest_word(words[i], i);
    ck_assert_uint_eq(digest_sum(words, sizeof(words)), sum);
    ck_assert_uint_eq(digest_join(DIGEST_START, sum, sizeof(words)),
                      digest_add(DIGEST_START, words, sizeof(words)));
    // The last bytes count as a word filled up with zeros.
    words[8] &= 0xffffff;
    ck_assert_uint_eq(digest_sum(words, sizeof(words) - 5), digest_sum(words, sizeof(words)));
}
END_TEST

// ---- arena ----

START_TEST(pieces_are_aligned_and_apart)
{
    struct arena a;
    struct error error;
    size_t total = 0;
    arena_init(&a);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(arena_add(&total, i, 3, &error), STATUS_OK);
    ck_assert_int_eq(arena_reserve(&a, total, &error), STATUS_OK);
    char *end = a.base;
    for (int i = 0; i < 100; i++) {
        char *piece = arena_take(&a, i, 3);
        ck_assert_uint_eq((uintptr_t)piece % ARENA_ALIGNMENT, 0);
        ck_assert(piece >= end);
        end = piece + 3 * i;
        memset(piece, 0xee, (size_t)i * 3);
    }
    ck_assert_uint_le(a.used, a.capacity);
    arena_fini(&a);
    arena_fini(&a);
}
END_TEST

START_TEST(memory_is_kept_up_to_a_limit)
{
    struct arena a;
    struct error error;
    arena_init(&a);
    ck_assert_int_eq(arena_reserve(&a, 1000, &error), STATUS_OK);
    ck_assert_ptr_nonnull(arena_take(&a, 0, 0));
    const char *base = a.base;
    arena_trim(&a);
    ck_assert_int_eq(arena_reserve(&a, 500, &error), STATUS_OK);
    ck_assert_ptr_eq(a.base, base);
    ck_assert_uint_eq(a.used, 0);
    ck_assert_int_eq(arena_reserve(&a, ARENA_KEEP_BYTES + 1, &error), STATUS_OK);
    ck_assert_uint_gt(a.capacity, ARENA_KEEP_BYTES);
    arena_trim(&a);
    ck_assert_uint_eq(a.capacity, 0);
    arena_fini(&a);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    struct arena a;
    struct error error;
    size_t total = 7;
    ck_assert_int_eq(arena_add(&total, INT64_MAX, 2, &error), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(arena_add(&total, -1, 2, &error), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(total, 7);
    arena_init(&a);
    ck_assert_int_eq(arena_reserve(&a, SIZE_MAX - 5, &error), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(arena_reserve(&a, (size_t)1 << 62, &error), STATUS_RESOURCE_EXHAUSTED);
    arena_fini(&a);
}
END_TEST

// A case uses at most the memory by which it is admitted or refused.
START_TEST(memory_is_within_its_bound)
{
    for (uint64_t seed = 0; seed < 600; seed++) {
        struct cp_case c;
        struct error error;
        int64_t foreseen;
        generate_case(seed, 8, seed % 2 ? 64 : 100000, &c);
        c.bias = (enum case_bias)(BIAS_NONE + seed / 2 % 9);
        c.softmax = (enum case_softmax)(SOFTMAX_VANILLA + seed / 18 % 3);
        c.max_logit = seed / 7 % 2;
        ck_assert_int_eq(case_memory(&c, &foreseen, &error), STATUS_OK);
        for (int rank = 0; rank < c.world_size; rank++) {
            struct plan *plan;
            size_t total = 0, pieces = 64;
            ck_assert_int_eq(plan_create(&c, rank, &plan, &error), STATUS_OK);
            for (int i = 0; i < plan->buffer_count; i++, pieces++)
                ck_assert_int_eq(arena_add(&total, plan->buffers[i].bytes, 1, &error), STATUS_OK);
            ck_assert_int_eq(verify_reserve(&c, rank, &total, &error), STATUS_OK);
            ck_assert_uint_le(total, (size_t)foreseen + pieces * ARENA_ALIGNMENT);
            plan_destroy(plan);
        }
    }
}
END_TEST

// ---- shards of inputs ----

// Every token of every sequence is in exactly one shard, with the elements of the definition. The
// memory between tokens is NaN.
static void assert_sharded(const struct cp_case *c, enum input_tensor tensor, enum shard_side side)
{
    struct span spans[64];
    float expected[HEAD_DIM_MAX];
    int heads = input_heads(c, tensor), dim = input_head_dim(c, tensor);
    int64_t tokens = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t rows = shard_rows(c, side, rank);
        float *data = malloc((size_t)(rows * heads * dim) * sizeof(float) + 1);
        int count = shard_spans(c, side, rank, spans);
        bool *used = calloc((size_t)rows + 1, sizeof(*used));
        inputs_fill(c, tensor, rank, spans, count, data);
        for (int s = 0; s < count; s++)
            for (int64_t i = 0; i < spans[s].len; i++, tokens++)
                for (int head = 0; head < heads; head++) {
                    int64_t row = spans[s].row + i * shard_row_step(c);
                    used[row] = true;
                    input_token_head(c, tensor, spans[s].sequence, spans[s].position + i, head,
                                     expected);
                    ck_assert_mem_eq(data + (row * heads + head) * dim, expected,
                                     (size_t)dim * sizeof(float));
                }
        for (int64_t i = 0; i < rows * heads * dim; i++)
            ck_assert(used[i / (heads * dim)] || isnan(data[i]));
        free(used);
        free(data);
    }
    for (int sequence = 0; sequence < c->batch; sequence++)
        tokens -= definition_length(c, side, sequence);
    ck_assert_int_eq(tokens, 0);
}

START_TEST(shards_hold_the_inputs)
{
    for (int variant = 0; variant < 16; variant++) {
        struct cp_case c;
        case_init(&c);
        c.world_size = 3;
        c.dtype = DTYPE_FP32;
        c.batch = 3;
        c.heads = 4;
        c.kv_heads = 2;
        c.head_dim_qk = 5;
        c.head_dim_v = 3;
        c.seqlen_q = 17;
        c.seqlen_kv = variant & 4 ? 2 : 29;
        c.format = variant & 1 ? FORMAT_SBHD : FORMAT_BSHD;
        c.sharding = variant & 2 ? SHARDING_CONTIGUOUS : SHARDING_ZIGZAG;
        if (variant & 8) {
            cases_set(&c, "lengths_q", "17,0,5");
            cases_set(&c, "lengths_kv", "2,1,0");
        }
        if (variant >= 12) {
            c.format = FORMAT_THD;
            cases_set(&c, "padded_q", "20,4,5");
        }
        assert_sharded(&c, INPUT_Q, SIDE_Q);
        assert_sharded(&c, INPUT_DO, SIDE_Q);
        assert_sharded(&c, INPUT_K, SIDE_KV);
        assert_sharded(&c, INPUT_V, SIDE_KV);
    }
}
END_TEST

// ---- operation times ----

// Every operation is within the run. Operations of a stream follow one another. An operation starts
// after those that it waits for.
static void times_check(const struct cp_case *c, int rank, const struct rank_report *report)
{
    const struct op_times *times = &report->op_times;
    uint64_t run_ns = report->timings.forward_ns + report->timings.backward_ns;
    uint64_t last_ns[PLAN_STREAMS] = {0};
    struct plan *plan;
    ck_assert_int_eq(plan_create(c, rank, &plan, NULL), STATUS_OK);
    ck_assert_int_eq(times->count, plan->op_count);
    ck_assert_uint_gt(times->begin_ns, 0);
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        ck_assert_uint_ge(times->list[i].start_ns, last_ns[op->stream]);
        ck_assert_uint_ge(times->list[i].end_ns, times->list[i].start_ns);
        ck_assert_uint_le(times->list[i].end_ns, run_ns);
        last_ns[op->stream] = times->list[i].end_ns;
        for (int32_t w = 0; w < op->wait_count; w++) {
            int32_t before = plan->waits[op->wait_first + w];
            ck_assert_uint_ge(times->list[i].start_ns, times->list[before].end_ns);
        }
    }
    plan_destroy(plan);
}

START_TEST(operations_are_timed_on_request)
{
    struct rank_report reports[4];
    struct cp_case c = cases_usual();
    c.world_size = 4;
    c.seqlen_q = c.seqlen_kv = 100;
    for (int comm = COMM_P2P; comm <= COMM_A2A_P2P; comm++) {
        struct error error;
        c.comm = (enum case_comm)comm;
        c.operation_times = true;
        ck_assert_msg(world_run(&c, reports, &error) == STATUS_OK, "%s", error.text);
        ck_assert(world_passed(reports, 4));
        for (int rank = 0; rank < 4; rank++)
            times_check(&c, rank, &reports[rank]);
        c.operation_times = false;
        ck_assert_int_eq(world_run(&c, reports, &error), STATUS_OK);
        for (int rank = 0; rank < 4; rank++)
            ck_assert_int_eq(reports[rank].op_times.count, 0);
    }
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rank_parts");
    TCase *parts = tcase_create("parts");
    tcase_set_timeout(parts, 60);
    tcase_add_test(parts, every_bit_counts);
    tcase_add_test(parts, words_come_in_any_order);
    tcase_add_test(parts, pieces_are_aligned_and_apart);
    tcase_add_test(parts, memory_is_kept_up_to_a_limit);
    tcase_add_test(parts, impossible_sizes_are_refused);
    tcase_add_test(parts, memory_is_within_its_bound);
    tcase_add_test(parts, shards_hold_the_inputs);
    tcase_add_test(parts, operations_are_timed_on_request);
    suite_add_tcase(s, parts);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
