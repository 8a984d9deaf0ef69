// SPDX-License-Identifier: Apache-2.0
// Visible ranges of the mask, and the rows of a sample.
#include "tests/support/runner.h"

#include <stdlib.h>

#include "judge/mask.h"
#include "judge/tiles.h"
#include "tests/support/cases.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"

#define CASES     400
#define TILES_MAX 4096

// ---- the mask -----------------------------------------------------------------------------------

static void sequence_check(const struct cp_case *c, int sequence)
{
    struct mask m = mask_of(c, sequence);
    double pairs = 0;
    ck_assert_int_eq(m.queries, definition_length(c, SIDE_Q, sequence));
    ck_assert_int_eq(m.keys, definition_length(c, SIDE_KV, sequence));
    for (int64_t i = 0; i < m.queries; i++)
        for (int64_t j = 0; j < m.keys; j++) {
            struct range keys = mask_keys(&m, i), queries = mask_queries(&m, j);
            bool sees = definition_visible(c, sequence, i, j);
            ck_assert_int_eq(sees, j >= keys.begin && j < keys.end);
            ck_assert_int_eq(sees, i >= queries.begin && i < queries.end);
            pairs += sees;
        }
    ck_assert_double_eq(mask_pairs(&m), pairs);
}

START_TEST(ranges_are_the_definition)
{
    struct cp_case c;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        generate_case(seed, 4, 40, &c);
        for (int s = 0; s < c.batch; s++)
            sequence_check(&c, s);
    }
}
END_TEST

// The range of keys of a block of queries contains the range of each query.
START_TEST(ranges_of_several_span_their_ranges)
{
    struct cp_case c;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        generate_case(seed, 4, 40, &c);
        struct mask m = mask_of(&c, 0);
        for (int64_t first = 0; first < m.queries; first += 3) {
            struct range block = {first, first + 5 < m.queries ? first + 5 : m.queries};
            struct range all = mask_keys_of(&m, block);
            for (int64_t i = block.begin; i < block.end; i++) {
                struct range keys = mask_keys(&m, i);
                ck_assert(keys.begin == keys.end ||
                          (keys.begin >= all.begin && keys.end <= all.end));
            }
        }
    }
}
END_TEST

// ---- tiles --------------------------------------------------------------------------------------

static struct tile tiles[TILES_MAX];

static int64_t list_check(const struct cp_case *c, enum shard_side side, double fraction,
                          const struct span *spans, int count)
{
    int64_t n = tiles_list(c, side, fraction, spans, count, tiles, TILES_MAX), tokens = 0;
    ck_assert_int_le(n, TILES_MAX);
    for (int64_t i = 0; i < n; i++) {
        const struct tile *t = &tiles[i];
        ck_assert(t->count > 0 && t->count <= TILE_TOKENS && t->first >= 0);
        ck_assert_int_le(t->first + t->count, spans[t->span].len);
        bool behind = i == 0 || t->span > t[-1].span ||
                      (t->span == t[-1].span && t->first >= t[-1].first + t[-1].count);
        ck_assert_msg(behind, "tile %d begins before the one before it ends", (int)i);
        tokens += t->count;
    }
    ck_assert_int_eq(tokens, tiles_tokens(tiles, n, spans, 0) + tiles_tokens(tiles, n, spans, 1));
    return tokens;
}

START_TEST(all_tiles_cover_a_rank)
{
    struct cp_case c;
    struct span spans[64];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        generate_case(seed, 4, 300, &c);
        for (int side = SIDE_Q; side <= SIDE_KV; side++) {
            int count = shard_spans(&c, (enum shard_side)side, 0, spans);
            int64_t tokens = 0;
            for (int i = 0; i < count; i++)
                tokens += spans[i].len;
            ck_assert_int_eq(list_check(&c, (enum shard_side)side, 1, spans, count), tokens);
        }
    }
}
END_TEST

// Edges of spans are always chosen, and about the requested fraction of the rest. Some tiles cross
// a multiple of 128, others begin at a multiple of 64.
START_TEST(a_sample_has_edges_and_its_part)
{
    struct cp_case c = cases_usual();
    c.seqlen_q = c.seqlen_kv = 200000;
    c.batch = 1;
    c.world_size = 1;
    struct span spans[2];
    int count = shard_spans(&c, SIDE_Q, 0, spans), across = 0, aligned = 0, edges = 0;
    double part = (double)list_check(&c, SIDE_Q, 0.2, spans, count) / 200000;
    ck_assert_msg(part > 0.17 && part < 0.23, "a part of %g", part);
    int64_t n = tiles_list(&c, SIDE_Q, 0.2, spans, count, tiles, TILES_MAX);
    for (int64_t i = 0; i < n; i++) {
        int64_t first = tiles[i].first, end = first + tiles[i].count;
        across += first / 128 != (end - 1) / 128;
        aligned += first % 64 == 0;
        edges += first == 0 || end == spans[tiles[i].span].len;
    }
    ck_assert_int_eq(edges, 2 * count);
    ck_assert(across > n / 5 && aligned > n / 3);
    c.seed++;
    struct tile other[TILES_MAX];
    int64_t m = tiles_list(&c, SIDE_Q, 0.2, spans, count, other, TILES_MAX);
    ck_assert(n != m || other[n / 2].first != tiles[n / 2].first);
}
END_TEST

START_TEST(room_is_respected)
{
    struct cp_case c = cases_usual();
    struct span spans[16];
    int count = shard_spans(&c, SIDE_Q, 0, spans);
    int64_t n = tiles_list(&c, SIDE_Q, 1, spans, count, NULL, 0);
    ck_assert_int_gt(n, 1);
    struct tile few[2] = {{-7, -7, -7}, {-7, -7, -7}};
    ck_assert_int_eq(tiles_list(&c, SIDE_Q, 1, spans, count, few, 1), n);
    ck_assert_int_eq(few[1].span, -7);
}
END_TEST

START_TEST(only_too_much_work_is_sampled)
{
    struct cp_case c = cases_usual();
    double work = tiles_work(&c);
    ck_assert_double_gt(work, 0);
    ck_assert_double_eq(tiles_fraction(&c, work), 1);
    ck_assert_double_eq(tiles_fraction(&c, work / 4), 0.25);
    c.verify = VERIFY_FULL;
    ck_assert_double_eq(tiles_fraction(&c, work / 4), 1);
    c.verify = VERIFY_AUTO;
    c.bias = BIAS_1HSS;
    ck_assert_double_eq(tiles_fraction(&c, work / 4), 1);
    c.training = false;
    ck_assert_double_lt(tiles_fraction(&c, work / 8), 1);
}
END_TEST

static Suite *tiles_suite(void)
{
    Suite *suite = suite_create("tiles");
    TCase *tcase = tcase_create("tiles");
    tcase_add_test(tcase, ranges_are_the_definition);
    tcase_add_test(tcase, ranges_of_several_span_their_ranges);
    tcase_add_test(tcase, all_tiles_cover_a_rank);
    tcase_add_test(tcase, a_sample_has_edges_and_its_part);
    tcase_add_test(tcase, room_is_respected);
    tcase_add_test(tcase, only_too_much_work_is_sampled);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(tiles_suite());
}
