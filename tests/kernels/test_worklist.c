// SPDX-License-Identifier: Apache-2.0
// Tests the work list of a forward call. Its tiles cover each visible (query, key) pair as often as
// the pair occurs in the slices.
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/worklist.h"
#include "tests/kernels/drawn_slices.h"
#include "tests/support/runner.h"

static const struct work_cut CUT = {.rows = 8, .keys = 64};

// Adds the pairs of a fragment to the tally. Returns true if some row of the tile sees one of the
// first `unit` keys of the fragment, and some row sees the last key.
static bool tally_fragment(const struct drawn_slices *scene, const struct work_tile *tile,
                           const struct work_fragment *fragment, int unit, struct pair_tally *tally)
{
    int64_t step = scene->shape.row_step;
    bool first = false, last = false;
    for (int64_t r = 0; r < tile->rows; r++)
        for (int64_t j = 0; j < fragment->keys; j++) {
            if (j < fragment->low + r || j >= fragment->high + r)
                continue;
            int64_t row = tile->q_row + r * step, key = fragment->kv_row + j * step;
            tally->pairs[row][key]++;
            tally->bias[row][key] +=
                fragment->bias + r * scene->shape.bias_row_step * DRAWN_BIAS_STRIDE + j;
            first |= j < unit;
            last |= j == fragment->keys - 1;
        }
    return first && last;
}

// True if the stored keys of a fragment include its keys, and end where the keys of some slice end.
static bool stored_is_right(const struct drawn_slices *scene, const struct work_fragment *fragment)
{
    int64_t step = scene->shape.row_step;
    for (int i = 0; i < scene->count; i++) {
        const struct slice *s = &scene->slices[i];
        if (fragment->kv_row >= s->kv_row && (fragment->kv_row - s->kv_row) % step == 0 &&
            fragment->kv_row + fragment->stored * step == s->kv_row + s->kv_len * step)
            return fragment->stored >= fragment->keys;
    }
    return false;
}

// True if the bias column of a fragment's first key is a multiple of `unit`, or if the keys of some
// slice begin less than `unit` keys before the fragment: then the slice may lack alignment keys.
static bool begins_at_unit(const struct drawn_slices *scene, const struct work_fragment *fragment,
                           int unit)
{
    if (fragment->bias % DRAWN_BIAS_STRIDE % unit == 0)
        return true;
    for (int i = 0; i < scene->count; i++) {
        int64_t rows = fragment->kv_row - scene->slices[i].kv_row;
        if (rows >= 0 && rows < unit * scene->shape.row_step)
            return true;
    }
    return false;
}

static int64_t fragment_blocks(const struct work_fragment *fragment)
{
    return (fragment->keys + CUT.keys - 1) / CUT.keys;
}

// Checks the tiles and fragments of a list, and adds their pairs to the tally.
static void tally_list(const struct drawn_slices *scene, const struct worklist *list, int unit,
                       struct pair_tally *tally)
{
    bool owned[DRAWN_ROWS_MAX] = {false};
    for (int32_t t = 0; t < list->tile_count; t++) {
        const struct work_tile *tile = &list->tiles[t];
        int64_t blocks = 0;
        ck_assert_int_ge(tile->rows, 1);
        ck_assert_int_le(tile->rows, CUT.rows);
        for (int64_t r = 0; r < tile->rows; r++) {
            int64_t row = tile->q_row + r * scene->shape.row_step;
            ck_assert(!owned[row]);
            owned[row] = true;
        }
        ck_assert_int_ge(tile->fragment_count, 1);
        for (int32_t f = 0; f < tile->fragment_count; f++) {
            const struct work_fragment *fragment = &list->fragments[tile->fragment + f];
            ck_assert_int_ge(fragment->keys, 1);
            ck_assert_int_eq(fragment->last, f == tile->fragment_count - 1);
            ck_assert(tally_fragment(scene, tile, fragment, unit, tally));
            ck_assert(begins_at_unit(scene, fragment, unit));
            ck_assert(stored_is_right(scene, fragment));
            blocks += fragment_blocks(fragment);
        }
        ck_assert_int_eq(tile->blocks, blocks);
        if (t > 0)
            ck_assert_int_ge(list->tiles[t - 1].blocks, tile->blocks);
    }
}

static void check_scene(const struct drawn_slices *scene, int unit, int last, struct worklist *list)
{
    static struct pair_tally wanted, found;
    struct work_cut cut = CUT;
    cut.unit = unit;
    cut.part = 3;
    cut.last = last;
    memset(&wanted, 0, sizeof(wanted));
    memset(&found, 0, sizeof(found));
    struct error error;
    ck_assert_int_eq(worklist_build(list, &scene->shape, scene->slices, scene->count, cut, &error),
                     STATUS_OK);
    slices_tally(scene, &wanted);
    tally_list(scene, list, unit > 0 ? unit : 1, &found);
    ck_assert_mem_eq(&wanted, &found, sizeof(wanted));
}

START_TEST(covers_what_is_visible)
{
    struct worklist list = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct drawn_slices scene;
        slices_draw(&scene, seed);
        check_scene(&scene, _i % 2 * 8, _i / 2 * (int)(seed % 40), &list);
    }
    worklist_fini(&list);
}
END_TEST

START_TEST(empty_slices_make_no_tile)
{
    struct worklist list = {0};
    struct drawn_slices scene = {.shape.row_step = 1, .count = 3};
    scene.slices[0] = (struct slice){.q_len = 5, .right = SLICE_UNBOUNDED};
    scene.slices[1] = (struct slice){.kv_len = 5, .right = SLICE_UNBOUNDED};
    // Causal, and all keys come after the last query.
    scene.slices[2] = (struct slice){.q_len = 5, .kv_len = 5, .offset = 5, .left = SLICE_UNBOUNDED};
    check_scene(&scene, 0, 0, &list);
    ck_assert_int_eq(list.tile_count, 0);
    worklist_fini(&list);
}
END_TEST

// Queries that are in several slices are in one tile, so that one thread block merges the results.
START_TEST(one_tile_for_many_slices)
{
    struct worklist list = {0};
    struct drawn_slices scene = {.shape.row_step = 1, .count = 3};
    for (int i = 0; i < 3; i++)
        scene.slices[i] = (struct slice){.q_len = CUT.rows,
                                         .kv_row = 30 * i,
                                         .kv_len = 20,
                                         .left = SLICE_UNBOUNDED,
                                         .right = SLICE_UNBOUNDED};
    check_scene(&scene, 0, 0, &list);
    ck_assert_int_eq(list.tile_count, 1);
    ck_assert_int_eq(list.fragment_count, 3);
    worklist_fini(&list);
}
END_TEST

// The longest possible slice, with extreme bounds: a fragment stores them in 32 bits.
START_TEST(long_sequences)
{
    struct worklist list = {0};
    struct attention_shape shape = {.row_step = 4096};
    struct slice slice = {.q_len = SEQLEN_MAX,
                          .kv_len = SEQLEN_MAX,
                          .offset = -SEQLEN_MAX,
                          .left = SLICE_UNBOUNDED - 1,
                          .right = SEQLEN_MAX};
    struct error error;
    ck_assert_int_eq(worklist_build(&list, &shape, &slice, 1,
                                    (struct work_cut){.rows = 1 << 20, .keys = 64}, &error),
                     STATUS_OK);
    ck_assert_int_eq(list.tile_count, 16);
    for (int32_t t = 0; t < list.tile_count; t++) {
        const struct work_fragment *fragment = &list.fragments[list.tiles[t].fragment];
        ck_assert_int_eq(fragment->keys, SEQLEN_MAX);
        ck_assert_int_eq(fragment->low, -WORK_BOUND);
        ck_assert_int_ge(fragment->high, SEQLEN_MAX);
    }
    worklist_fini(&list);
}
END_TEST

#define SEQUENCES 6

// Builds the ordered list of causal sequences with four tiles and 10 blocks of keys each. Their
// rows are concatenated or interleaved.
static void sequences_build(struct worklist *list, bool interleaved)
{
    static struct slice slices[SEQUENCES];
    const struct work_cut cut = {.rows = 8, .keys = 8};
    int64_t length = 4 * cut.rows;
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t row = interleaved ? i : i * length;
        slices[i] = (struct slice){.q_row = row,
                                   .q_len = length,
                                   .kv_row = row,
                                   .kv_len = length,
                                   .left = SLICE_UNBOUNDED};
    }
    struct attention_shape shape = {.row_step = interleaved ? SEQUENCES : 1};
    struct error error;
    ck_assert_int_eq(worklist_build(list, &shape, slices, SEQUENCES, cut, &error), STATUS_OK);
    worklist_order(list, shape.row_step, 2 * length, 25);
}

static int tile_sequence(const struct worklist *list, const struct work_tile *tile,
                         bool interleaved)
{
    int64_t row = list->fragments[tile->fragment].kv_row;
    return (int)(interleaved ? row % SEQUENCES : row / 32);
}

// The first section has two sequences. The second has the other four: a section does not end where
// fewer than 25 blocks follow, and two sequences have 20.
START_TEST(sequences_near_each_other)
{
    bool interleaved = _i == 1;
    struct worklist list = {0};
    sequences_build(&list, interleaved);
    ck_assert_int_eq(list.tile_count, 4 * SEQUENCES);
    for (int32_t t = 0; t < list.tile_count; t++) {
        int section = t < 8 ? 0 : 1, sequence = tile_sequence(&list, &list.tiles[t], interleaved);
        ck_assert_int_eq(sequence < 2 ? 0 : 1, section);
        ck_assert_int_eq(list.tiles[t].blocks, section == 0 ? 4 - t / 2 : 4 - (t - 8) / 4);
    }
    worklist_fini(&list);
}
END_TEST

// The first tile of a sequence gets the remainder of the rows: it sees the fewest keys.
START_TEST(first_tile_is_short)
{
    struct worklist list = {0};
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {.q_len = 19, .kv_len = 19, .left = SLICE_UNBOUNDED};
    struct error error;
    ck_assert_int_eq(
        worklist_build(&list, &shape, &slice, 1, (struct work_cut){.rows = 8, .keys = 8}, &error),
        STATUS_OK);
    ck_assert_int_eq(list.tile_count, 3);
    for (int32_t t = 0; t < 3; t++) {
        const struct work_tile *tile = &list.tiles[t];
        ck_assert_int_eq(tile->rows, tile->q_row == 0 ? 3 : 8);
        ck_assert_int_eq(tile->q_row % 8, tile->q_row == 0 ? 0 : 3);
    }
    worklist_fini(&list);
}
END_TEST

// Tiles are small as soon as at most 13 queries (cut.last) of all slices are left. Among tiles of
// equal cost, those with more rows come first.
START_TEST(last_tiles_are_small)
{
    struct worklist list = {0};
    struct attention_shape shape = {.row_step = 1};
    struct slice slices[2] = {{.q_len = 20, .kv_len = 8},
                              {.q_row = 20, .q_len = 20, .kv_row = 8, .kv_len = 8}};
    struct error error;
    for (int i = 0; i < 2; i++)
        slices[i].left = slices[i].right = SLICE_UNBOUNDED;
    const struct work_cut cut = {.rows = 8, .keys = 8, .part = 3, .last = 13};
    ck_assert_int_eq(worklist_build(&list, &shape, slices, 2, cut, &error), STATUS_OK);
    worklist_order(&list, 1, 1 << 20, 0);
    const int q_rows[] = {4, 12, 24, 0, 20, 34, 37, 32}, rows[] = {8, 8, 8, 4, 4, 3, 3, 2};
    ck_assert_int_eq(list.tile_count, 8);
    for (int t = 0; t < 8; t++) {
        ck_assert_int_eq(list.tiles[t].q_row, q_rows[t]);
        ck_assert_int_eq(list.tiles[t].rows, rows[t]);
    }
    worklist_fini(&list);
}
END_TEST

// Two processors compute five tiles of two blocks for each of three heads, in two sections. In the
// second list the last tile is cut into small ones, which take less time.
START_TEST(time_of_the_last_processor)
{
    struct worklist list = {0};
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {
        .q_len = 5 * 192, .kv_len = 16, .left = SLICE_UNBOUNDED, .right = SLICE_UNBOUNDED};
    const struct work_load load = {.processors = 2,
                                   .heads = 3,
                                   .section = 2,
                                   .sections = 2,
                                   .group_time = {10, 15, 20},
                                   .tile_time = 7};
    struct work_cut cut = {.rows = 192, .keys = 8, .part = 64};
    struct error error;
    ck_assert_int_eq(worklist_build(&list, &shape, &slice, 1, cut, &error), STATUS_OK);
    ck_assert_int_eq(worklist_time(&list, &load), 8 * 47);
    cut.last = 192;
    ck_assert_int_eq(worklist_build(&list, &shape, &slice, 1, cut, &error), STATUS_OK);
    // First section: 8 large and 6 small tiles. Last section: 4 large and 3 small ones.
    ck_assert_int_eq(worklist_time(&list, &load), 4 * 47 + 3 * 27 + 2 * 47 + 2 * 27);
    worklist_fini(&list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worklist");
    TCase *tcase = tcase_create("worklist");
    tcase_add_loop_test(tcase, covers_what_is_visible, 0, 4);
    tcase_add_test(tcase, empty_slices_make_no_tile);
    tcase_add_test(tcase, one_tile_for_many_slices);
    tcase_add_test(tcase, long_sequences);
    tcase_add_loop_test(tcase, sequences_near_each_other, 0, 2);
    tcase_add_test(tcase, first_tile_is_short);
    tcase_add_test(tcase, last_tiles_are_small);
    tcase_add_test(tcase, time_of_the_last_processor);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
