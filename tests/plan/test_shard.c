// SPDX-License-Identifier: Apache-2.0
// Slices of small lengths, compared with the definition by counting pairs; examples of shards.
// Random shards are in tests/plan/test_layout.c.
#include "plan/shard.h"

#include <stdlib.h>
#include <string.h>

#include "plan/tiling.h"
#include "tests/support/cases.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define SEEDS      10000
#define WORLD_MAX  8
#define LENGTH_MAX 24
#define ROWS_MAX   (GENERATE_BATCH_MAX * (int)GENERATE_OCCUPIED(LENGTH_MAX, WORLD_MAX))
#define SPANS_MAX  64

// An assertion for inner loops. Each of Check's own assertions writes to a file.
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s", #condition);                                                        \
    } while (0)

// ---- chunks and shards ----

START_TEST(chunks_partition_evenly)
{
    uint64_t state = 1;
    for (int n = 0; n < 5000; n++) {
        int64_t len = generate_below(&state, n % 2 ? 40 : SEQLEN_MAX + 1);
        int chunks = 1 + (int)generate_below(&state, 2 * WORLD_SIZE_MAX);
        int64_t reached = 0;
        for (int k = 0; k < chunks; k++) {
            int64_t begin, end;
            shard_chunk(len, chunks, k, &begin, &end);
            EXPECT(begin == reached);
            EXPECT(end - begin >= len / chunks);
            EXPECT(end - begin <= (len + chunks - 1) / chunks);
            reached = end;
        }
        EXPECT(reached == len);
    }
}
END_TEST

START_TEST(zigzag_deals_from_both_ends)
{
    struct cp_case c;
    case_init(&c);
    c.world_size = 4;
    ck_assert_int_eq(shard_chunks_per_rank(&c), 2);
    ck_assert_int_eq(shard_chunk_of(&c, 1, 0), 1);
    ck_assert_int_eq(shard_chunk_of(&c, 1, 1), 6);
    c.sharding = SHARDING_CONTIGUOUS;
    ck_assert_int_eq(shard_chunks_per_rank(&c), 1);
    ck_assert_int_eq(shard_chunk_of(&c, 1, 0), 1);
}
END_TEST

// Row of a token in local memory by the definition of the formats.
START_TEST(formats_order_rows)
{
    struct cp_case c;
    struct span spans[SPANS_MAX];
    case_init(&c);
    c.world_size = 2;
    c.batch = 3;
    c.seqlen_q = 10; // chunks of 2, 3, 2, 3: rank 0 holds 0..1 and 7..9
    ck_assert_int_eq(shard_spans(&c, SIDE_Q, 0, spans), 6);
    ck_assert_int_eq(spans[3].sequence, 1);
    ck_assert_int_eq(spans[3].chunk, 1);
    ck_assert_int_eq(spans[3].position, 7);
    ck_assert_int_eq(spans[3].len, 3);
    ck_assert_int_eq(spans[3].row, 1 * 5 + 2);
    ck_assert_int_eq(shard_row_step(&c), 1);
    c.format = FORMAT_SBHD;
    ck_assert_int_eq(shard_spans(&c, SIDE_Q, 0, spans), 6);
    ck_assert_int_eq(spans[3].row, 2 * 3 + 1);
    ck_assert_int_eq(shard_row_step(&c), 3);
}
END_TEST

static void expect_span(const struct span *span, int sequence, int chunk, int64_t row, int64_t len,
                        int64_t position)
{
    ck_assert_int_eq(span->sequence, sequence);
    ck_assert_int_eq(span->chunk, chunk);
    ck_assert_int_eq(span->row, row);
    ck_assert_int_eq(span->len, len);
    ck_assert_int_eq(span->position, position);
}

// Two ranks, six sequences in four chunks each. Of sequence 0, rank 0 holds the keys 0..2 and
// padding.
START_TEST(padding_is_in_no_span)
{
    struct cp_case c = cases_thd("9,8,8,12,8,12", "", "12,8,8,12,8,12", "");
    struct span spans[SPANS_MAX];
    c.batch = 6;
    ck_assert_int_eq(shard_spans(&c, SIDE_KV, 0, spans), 11);
    expect_span(&spans[0], 0, 0, 0, 3, 0);
    expect_span(&spans[1], 1, 0, 6, 2, 0); // the second chunk of sequence 0 is in rows 3..5
    expect_span(&spans[2], 1, 1, 8, 2, 6);
    expect_span(&spans[10], 5, 1, 27, 3, 9);
    ck_assert_int_eq(shard_rows(&c, SIDE_KV, 0), 30);
    ck_assert_int_eq(shard_spans(&c, SIDE_Q, 1, spans), 12);
    expect_span(&spans[1], 0, 1, 3, 3, 6);
    ck_assert_int_eq(shard_padding(&c, SIDE_KV, 0, spans), 1);
    expect_span(&spans[0], 0, 1, 3, 3, 9);
    ck_assert_int_eq(shard_padding(&c, SIDE_Q, 1, spans), 0);
}
END_TEST

// In bshd and sbhd every sequence has room for seqlen tokens.
START_TEST(short_sequences_leave_their_rows)
{
    struct cp_case c = cases_usual();
    struct span spans[SPANS_MAX];
    c.batch = 3;
    c.seqlen_q = 8;
    cases_set(&c, "lengths_q", "8,1,7");
    ck_assert_int_eq(shard_spans(&c, SIDE_Q, 0, spans), 5);
    expect_span(&spans[2], 1, 0, 4, 1, 0);
    expect_span(&spans[4], 2, 1, 10, 1, 6);
    ck_assert_int_eq(shard_rows(&c, SIDE_Q, 0), 12);
    c.format = FORMAT_SBHD;
    ck_assert_int_eq(shard_spans(&c, SIDE_Q, 0, spans), 5);
    expect_span(&spans[2], 1, 0, 1, 1, 0);
    expect_span(&spans[4], 2, 1, 2 + 2 * 3, 1, 6);
}
END_TEST

// ---- slices ----

static struct slice random_slice(uint64_t *state)
{
    struct slice s = {.q_len = generate_below(state, 12), .kv_len = generate_below(state, 12)};
    s.offset = generate_below(state, 40) - 20;
    s.left = generate_below(state, 30) - 8;
    s.right = generate_below(state, 30) - 8;
    if (generate_below(state, 4) == 0)
        s.left = SLICE_UNBOUNDED;
    if (generate_below(state, 4) == 0)
        s.right = SLICE_UNBOUNDED;
    return s;
}

START_TEST(pairs_and_rows_follow_the_definition)
{
    uint64_t state = 5;
    for (int n = 0; n < 20000; n++) {
        struct slice s = random_slice(&state);
        int64_t pairs = 0, seeing, last_seeing;
        slice_seeing(&s, &seeing, &last_seeing);
        for (int64_t i = 0; i < s.q_len; i++) {
            int64_t begin, end;
            slice_visible(&s, i, &begin, &end);
            EXPECT((begin < end) == (seeing <= i && i < last_seeing));
            for (int64_t j = 0; j < s.kv_len; j++) {
                int64_t at = j + s.offset - i;
                bool visible = -s.left <= at && at <= s.right;
                EXPECT((begin <= j && j < end) == visible);
                pairs += visible;
            }
        }
        EXPECT(slice_pairs(&s) == pairs);
        int64_t seen, last_seen;
        slice_seen(&s, &seen, &last_seen);
        for (int64_t j = 0; j < s.kv_len; j++) {
            bool by_any = false;
            for (int64_t i = 0; i < s.q_len; i++)
                by_any = by_any || (-s.left <= j + s.offset - i && j + s.offset - i <= s.right);
            EXPECT(by_any == (seen <= j && j < last_seen));
        }
    }
}
END_TEST

START_TEST(pairs_of_the_longest_sequences_fit)
{
    struct slice s = {.q_len = SEQLEN_MAX, .kv_len = SEQLEN_MAX, .left = SLICE_UNBOUNDED};
    ck_assert_int_eq(slice_pairs(&s), SEQLEN_MAX * (SEQLEN_MAX + 1) / 2);
    s.right = SLICE_UNBOUNDED;
    ck_assert_int_eq(slice_pairs(&s), SEQLEN_MAX * SEQLEN_MAX);
}
END_TEST

// Token of each local row of a rank, sequence * LENGTH_MAX + position.
static void row_tokens(const struct cp_case *c, enum shard_side side, int rank, int64_t *tokens)
{
    struct span spans[SPANS_MAX];
    int count = shard_spans(c, side, rank, spans);
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len; t++)
            tokens[spans[n].row + t * shard_row_step(c)] =
                spans[n].sequence * LENGTH_MAX + spans[n].position + t;
}

// Visible pairs of the slices, [query][key] by token.
typedef unsigned char pair_counts[GENERATE_BATCH_MAX * LENGTH_MAX][GENERATE_BATCH_MAX * LENGTH_MAX];

static void expect_tight(const struct slice *s)
{
    int64_t begin, end, key_min = s->kv_len, key_max = -1;
    for (int64_t i = 0; i < s->q_len; i++) {
        slice_visible(s, i, &begin, &end);
        EXPECT(begin < end || (i > 0 && i + 1 < s->q_len)); // first and last query see a key
        if (begin < end && begin < key_min)
            key_min = begin;
        if (begin < end && end > key_max)
            key_max = end;
    }
    EXPECT(key_min == 0);
    EXPECT(key_max == s->kv_len);
}

static void count_slices(const struct cp_case *c, int rank, int source, int64_t base,
                         pair_counts counts)
{
    struct span q[SPANS_MAX], kv[SPANS_MAX];
    struct slice slices[4 * SPANS_MAX];
    int64_t q_tokens[ROWS_MAX], kv_tokens[ROWS_MAX], step = shard_row_step(c);
    row_tokens(c, SIDE_Q, rank, q_tokens);
    row_tokens(c, SIDE_KV, source, kv_tokens);
    int q_count = shard_spans(c, SIDE_Q, rank, q), kv_count = shard_spans(c, SIDE_KV, source, kv);
    int count = tiling_build(c, q, q_count, kv, kv_count, base, slices);
    EXPECT(count <= q_count * shard_chunks_per_rank(c));
    for (int n = 0; n < count; n++) {
        const struct slice *s = &slices[n];
        expect_tight(s);
        for (int64_t i = 0; i < s->q_len; i++)
            for (int64_t j = 0; j < s->kv_len; j++)
                if (-s->left <= j + s->offset - i && j + s->offset - i <= s->right)
                    counts[q_tokens[s->q_row + i * step]][kv_tokens[s->kv_row - base + j * step]]++;
    }
}

START_TEST(slices_cover_visible_pairs_once)
{
    static pair_counts counts;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct cp_case c;
        generate_case(seed, WORLD_MAX, LENGTH_MAX, &c);
        memset(counts, 0, sizeof counts);
        for (int rank = 0; rank < c.world_size; rank++)
            for (int source = 0; source < c.world_size; source++)
                count_slices(&c, rank, source, (int64_t)(seed % 3) * 100, counts);
        for (int64_t a = 0; a < c.batch * LENGTH_MAX; a++)
            for (int64_t b = 0; b < c.batch * LENGTH_MAX; b++) {
                bool visible =
                    a / LENGTH_MAX == b / LENGTH_MAX &&
                    definition_visible(&c, (int)(a / LENGTH_MAX), a % LENGTH_MAX, b % LENGTH_MAX);
                if (counts[a][b] != visible)
                    ck_abort_msg("seed %llu: query %lld, key %lld: %d times",
                                 (unsigned long long)seed, (long long)a, (long long)b,
                                 counts[a][b]);
            }
    }
}
END_TEST

// The number of slices of one step and the pairs of a sequence. The case has two interleaved
// sequences of 2P chunks of 8 tokens.
static int step_slices(enum case_mask mask, int world_size, int rank, int source, int64_t *pairs)
{
    struct cp_case c;
    struct span q[4], kv[4];
    struct slice slices[8];
    case_init(&c);
    c.mask = mask;
    c.format = FORMAT_SBHD;
    c.world_size = world_size;
    c.seqlen_q = c.seqlen_kv = 16 * world_size;
    int q_count = shard_spans(&c, SIDE_Q, rank, q), kv_count = shard_spans(&c, SIDE_KV, source, kv);
    int count = tiling_build(&c, q, q_count, kv, kv_count, 0, slices);
    *pairs = 0;
    for (int n = 0; n < count; n++)
        *pairs += slice_pairs(&slices[n]);
    ck_assert_int_eq(count % 2, 0);
    *pairs /= 2;
    return count / 2; // for each sequence
}

START_TEST(neighbours_without_a_mask_merge)
{
    int64_t pairs;
    for (int rank = 0; rank < 4; rank++)
        for (int source = 0; source < 4; source++) {
            ck_assert_int_eq(step_slices(MASK_NONE, 4, rank, source, &pairs), 1);
            ck_assert_int_eq(pairs, 16 * 16);
        }
    ck_assert_int_eq(step_slices(MASK_CAUSAL, 4, 2, 1, &pairs), 1); // all queries, first chunk
    ck_assert_int_eq(step_slices(MASK_CAUSAL, 4, 1, 2, &pairs), 1); // second chunk, all keys
    ck_assert_int_eq(step_slices(MASK_CAUSAL, 4, 1, 1, &pairs), 3); // two diagonals, one block
    ck_assert_int_eq(step_slices(MASK_CAUSAL, 4, 3, 3, &pairs), 1); // chunks that touch
    ck_assert_int_eq(step_slices(MASK_CAUSAL, 1, 0, 0, &pairs), 1);
}
END_TEST

START_TEST(zigzag_balances_a_causal_mask)
{
    int64_t pairs;
    for (int rank = 0; rank < 8; rank++)
        for (int source = 0; source < 8; source++) {
            step_slices(MASK_CAUSAL, 8, rank, source, &pairs);
            ck_assert_int_eq(pairs, rank == source ? 2 * 36 + 64 : 2 * 64);
        }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("shard");
    TCase *shards = tcase_create("shards");
    tcase_add_test(shards, chunks_partition_evenly);
    tcase_add_test(shards, zigzag_deals_from_both_ends);
    tcase_add_test(shards, formats_order_rows);
    tcase_add_test(shards, padding_is_in_no_span);
    tcase_add_test(shards, short_sequences_leave_their_rows);
    suite_add_tcase(s, shards);
    TCase *slices = tcase_create("slices");
    tcase_add_test(slices, pairs_and_rows_follow_the_definition);
    tcase_add_test(slices, pairs_of_the_longest_sequences_fit);
    tcase_add_test(slices, slices_cover_visible_pairs_once);
    tcase_add_test(slices, neighbours_without_a_mask_merge);
    tcase_add_test(slices, zigzag_balances_a_causal_mask);
    suite_add_tcase(s, slices);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
