// SPDX-License-Identifier: Apache-2.0
// Tests the work list of a backward call. Its tiles cover each visible (query, key) pair as often
// as the pair occurs in the slices.
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/worklist_backward.h"
#include "kernels/cuda/worklist_tail.h"
#include "tests/kernels/drawn_slices.h"
#include "tests/support/runner.h"

#define BIAS_ROWS (DRAWN_ROWS_MAX + 10)

static const struct backward_cut cut = {.q_rows = 8, .kv_rows = 12};

// ---- contents of a list ----

// visit() is called for each pair that a fragment admits, with the query row, the key row, and the
// index of the pair's bias element.
struct visitor {
    void (*visit)(struct visitor *visitor, const struct backward_tile *tile, int64_t row,
                  int64_t key, int64_t bias);
    const struct drawn_slices *scene;
    struct pair_tally *tally;
    int32_t *chains; // [BIAS_ROWS * DRAWN_BIAS_STRIDE]: 1 + chain that adds to the element; or 0
};

// Visits the pairs of one block of queries. Returns true if there are any.
static bool visit_block(struct visitor *visitor, const struct backward_tile *tile,
                        const struct backward_fragment *fragment, int32_t block)
{
    const struct attention_shape *shape = &visitor->scene->shape;
    bool any = false;
    for (int64_t i = block * cut.q_rows; i < (block + 1) * cut.q_rows && i < fragment->q_len; i++)
        for (int64_t j = 0; j < tile->rows; j++) {
            if (j - i < fragment->low || j - i > fragment->high)
                continue;
            any = true;
            visitor->visit(visitor, tile, fragment->q_row + i * shape->row_step,
                           tile->kv_row + j * shape->row_step,
                           fragment->bias + i * shape->bias_row_step * DRAWN_BIAS_STRIDE + j);
        }
    return any;
}

static void visit_tiles(struct visitor *visitor, const struct backward_worklist *list,
                        int32_t first, int32_t count)
{
    for (int32_t t = first; t < first + count; t++)
        for (int32_t f = 0; f < list->tiles[t].fragment_count; f++) {
            const struct backward_fragment *fragment =
                &list->fragments[list->tiles[t].fragment + f];
            ck_assert_int_lt(fragment->block_begin, fragment->block_end);
            for (int32_t b = fragment->block_begin; b < fragment->block_end; b++)
                ck_assert(visit_block(visitor, &list->tiles[t], fragment, b));
        }
}

static void visit_list(struct visitor *visitor, const struct backward_worklist *list)
{
    visit_tiles(visitor, list, 0, list->tile_count);
}

static void count_pair(struct visitor *visitor, const struct backward_tile *tile, int64_t row,
                       int64_t key, int64_t bias)
{
    (void)tile;
    visitor->tally->pairs[row][key]++;
    visitor->tally->bias[row][key] += bias;
}

// Checks that the tiles that add to a bias element are all in one chain.
static void note_chain(struct visitor *visitor, const struct backward_tile *tile, int64_t row,
                       int64_t key, int64_t bias)
{
    (void)row;
    (void)key;
    int32_t *chain = &visitor->chains[bias];
    ck_assert(*chain == 0 || *chain == tile->chain + 1);
    *chain = tile->chain + 1;
}

// ---- tests ----

static int64_t chain_steps(const struct backward_worklist *list, int32_t chain)
{
    int64_t steps = 0;
    for (int32_t t = list->chains[chain]; t < list->chains[chain + 1]; t++)
        steps += list->tiles[t].steps;
    return steps;
}

// Checks that no key row is in two tiles, that the tiles of a chain are adjacent, that chains with
// more steps come first, and that list->steps is the sum of the tiles' steps.
static void check_tiles(const struct drawn_slices *scene, const struct backward_worklist *list)
{
    bool owned[DRAWN_ROWS_MAX] = {false};
    int64_t steps = 0;
    for (int32_t t = 0; t < list->tile_count; t++) {
        const struct backward_tile *tile = &list->tiles[t];
        ck_assert(tile->rows >= 1 && tile->rows <= cut.kv_rows && tile->fragment_count >= 1);
        for (int64_t r = 0; r < tile->rows; r++) {
            int64_t row = tile->kv_row + r * scene->shape.row_step;
            ck_assert(!owned[row]);
            owned[row] = true;
        }
        ck_assert(t >= list->chains[tile->chain] && t < list->chains[tile->chain + 1]);
        steps += tile->steps;
    }
    ck_assert_int_eq(steps, list->steps);
    for (int32_t c = 1; c < list->chain_count; c++)
        ck_assert_int_ge(chain_steps(list, c - 1), chain_steps(list, c));
}

// Checks that blocks with the same index begin at the same row and blocks with different indices at
// different rows, and that no two steps have the same index.
static void check_blocks(const struct drawn_slices *scene, const struct backward_worklist *list)
{
    int64_t rows[DRAWN_ROWS_MAX];
    bool *numbers = calloc((size_t)list->steps + 1, 1);
    for (int i = 0; i < DRAWN_ROWS_MAX; i++)
        rows[i] = -1;
    for (int32_t f = 0; f < list->fragment_count; f++) {
        const struct backward_fragment *fragment = &list->fragments[f];
        for (int32_t b = fragment->block_begin; b < fragment->block_end; b++) {
            int64_t row = fragment->q_row + b * (int64_t)cut.q_rows * scene->shape.row_step;
            int32_t block = fragment->block_first + b;
            int64_t step = fragment->turn + b - fragment->block_begin;
            ck_assert(block < list->block_count && step < list->steps && !numbers[step]);
            numbers[step] = true;
            ck_assert(rows[block] == -1 || rows[block] == row);
            rows[block] = row;
            for (int32_t other = 0; other < list->block_count; other++)
                ck_assert(other == block || rows[other] != row);
        }
    }
    free(numbers);
}

// Checks that each row is residue + begin * row_step.
static void check_places(const struct drawn_slices *scene, const struct backward_worklist *list)
{
    int64_t step = scene->shape.row_step;
    for (int32_t i = 0; i < list->tile_count; i++) {
        const struct backward_tile *tile = &list->tiles[i];
        ck_assert(tile->residue < step && tile->kv_row == tile->residue + tile->begin * step);
    }
    for (int32_t i = 0; i < list->fragment_count; i++) {
        const struct backward_fragment *f = &list->fragments[i];
        ck_assert(f->residue < step && f->q_row == f->residue + f->begin * step);
    }
}

static void check_scene(const struct drawn_slices *scene, struct backward_worklist *list,
                        bool chained)
{
    static struct pair_tally wanted, found;
    memset(&wanted, 0, sizeof(wanted));
    memset(&found, 0, sizeof(found));
    struct error error;
    struct backward_cut asked = cut;
    asked.chained = chained;
    ck_assert_int_eq(
        backward_worklist_build(list, &scene->shape, scene->slices, scene->count, asked, &error),
        STATUS_OK);
    struct visitor visitor = {.visit = count_pair, .scene = scene, .tally = &found};
    slices_tally(scene, &wanted);
    visit_list(&visitor, list);
    ck_assert_mem_eq(&wanted, &found, sizeof(wanted));
    check_tiles(scene, list);
    check_blocks(scene, list);
    check_places(scene, list);
    if (chained) {
        visitor.visit = note_chain;
        visitor.chains = calloc(BIAS_ROWS * DRAWN_BIAS_STRIDE, sizeof(*visitor.chains));
        visit_list(&visitor, list);
        free(visitor.chains);
    } else {
        ck_assert_int_eq(list->chain_count, list->tile_count);
    }
}

START_TEST(covers_what_is_visible)
{
    struct backward_worklist list = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct drawn_slices scene;
        slices_draw(&scene, seed);
        check_scene(&scene, &list, seed % 2 == 0);
    }
    backward_worklist_fini(&list);
}
END_TEST

// Tiles that share no bias element are in different chains, so that none waits for another.
START_TEST(chains_are_no_longer_than_needed)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1,
                                    .bias_row_stride = DRAWN_BIAS_STRIDE,
                                    .bias_row_step = 1,
                                    .bias_head_stride = 0};
    struct slice slices[2];
    for (int i = 0; i < 2; i++)
        slices[i] = (struct slice){.q_row = i * 40,
                                   .q_len = 40,
                                   .kv_row = i * 36,
                                   .kv_len = 36,
                                   .left = SLICE_UNBOUNDED,
                                   .right = SLICE_UNBOUNDED};
    struct backward_cut asked = {.q_rows = 8, .kv_rows = 12, .chained = true};
    // Both slices have the same rows and columns of the bias: three chains of two tiles.
    ck_assert_int_eq(backward_worklist_build(&list, &shape, slices, 2, asked, &error), STATUS_OK);
    ck_assert_int_eq(list.tile_count, 6);
    ck_assert_int_eq(list.chain_count, 3);
    // Each slice has its own rows of the bias.
    slices[1].bias_row = 40;
    ck_assert_int_eq(backward_worklist_build(&list, &shape, slices, 2, asked, &error), STATUS_OK);
    ck_assert_int_eq(list.chain_count, 6);
    ck_assert_int_eq(list.block_count, 10);
    slices[0].bias_row = 80;
    ck_assert_int_eq(backward_worklist_build(&list, &shape, slices, 2, asked, &error), STATUS_OK);
    ck_assert_int_eq(list.chain_count, 6);
    backward_worklist_fini(&list);
}
END_TEST

// ---- tails ----

// Sets `steps` to the steps of a tile in processing order, and returns their number. A step is
// encoded as 1000 * the first row of its interval + its block in the interval. `reversed`: the
// value of backward_load.turns.
static int32_t steps_of(const struct backward_worklist *list, const struct backward_tile *tile,
                        bool reversed, int64_t *steps)
{
    int32_t count = 0;
    for (int32_t i = 0; i < tile->fragment_count; i++) {
        int32_t at = reversed ? tile->fragment_count - 1 - i : i;
        const struct backward_fragment *f = &list->fragments[tile->fragment + at];
        for (int32_t b = 0; b < f->block_end - f->block_begin; b++)
            steps[count++] =
                f->q_row * 1000 + (reversed ? f->block_begin + b : f->block_end - 1 - b);
    }
    ck_assert_int_eq(count, tile->steps);
    return count;
}

// Checks that the pieces of a tile are adjacent and have the tile's steps in the same order.
static void check_pieces(const struct backward_worklist *list, bool reversed)
{
    int64_t whole[DRAWN_ROWS_MAX] = {0}, cut_up[DRAWN_ROWS_MAX] = {0};
    int32_t at = list->tile_count, end = at + list->tail_count;
    for (int32_t i = 0; i < list->tile_count; i++) {
        int32_t number = reversed ? list->tile_count - 1 - i : i, count = 0;
        const struct backward_tile *tile = &list->tiles[number];
        ck_assert(tile->keys == number && tile->piece == 0);
        ck_assert_int_eq(tile->pieces, list->tiles[at].pieces);
        for (int32_t piece = 0, pieces = tile->pieces; piece < pieces; piece++, at++) {
            const struct backward_tile *t = &list->tiles[at];
            ck_assert(at < end && t->steps > 0 && t->keys == number);
            ck_assert(t->piece == piece && t->pieces == pieces && t->kv_row == tile->kv_row);
            count += steps_of(list, t, reversed, cut_up + count);
        }
        ck_assert_int_eq(steps_of(list, tile, reversed, whole), count);
        ck_assert_mem_eq(whole, cut_up, (size_t)count * sizeof(*whole));
    }
    ck_assert_int_eq(at, end);
}

START_TEST(a_tail_has_the_same_work)
{
    static struct pair_tally wanted, found;
    struct backward_worklist list = {0};
    struct error error;
    int tails = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct drawn_slices scene;
        slices_draw(&scene, seed);
        ck_assert_int_eq(
            backward_worklist_build(&list, &scene.shape, scene.slices, scene.count, cut, &error),
            STATUS_OK);
        int32_t heads = 1 + (int32_t)(seed % 5);
        const struct backward_load load = {.processors = 2 + (int32_t)(seed % 11),
                                           .heads = heads,
                                           .section = 1 + (int32_t)(seed % 3) % heads,
                                           .repeats = 1 + (int32_t)(seed % 2) * 40,
                                           .turns = seed / 2 % 2};
        ck_assert_int_eq(backward_worklist_tail(&list, &load, &error), STATUS_OK);
        if (list.tail_count == 0)
            continue;
        tails++;
        ck_assert(list.tail_heads >= 1 && list.tail_heads <= heads);
        memset(&wanted, 0, sizeof(wanted));
        memset(&found, 0, sizeof(found));
        slices_tally(&scene, &wanted);
        struct visitor visitor = {.visit = count_pair, .scene = &scene, .tally = &found};
        visit_tiles(&visitor, &list, list.tile_count, list.tail_count);
        ck_assert_mem_eq(&wanted, &found, sizeof(wanted));
        check_pieces(&list, load.turns);
        check_blocks(&scene, &list);
    }
    ck_assert_int_gt(tails, 50);
    backward_worklist_fini(&list);
}
END_TEST

static struct backward_worklist dense_list(int64_t rows)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {
        .q_len = rows, .kv_len = rows, .left = SLICE_UNBOUNDED, .right = SLICE_UNBOUNDED};
    struct backward_cut asked = {.q_rows = 64, .kv_rows = 128};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, &slice, 1, asked, &error), STATUS_OK);
    return list;
}

// On 128 processors, 64 tiles (of all heads) are cut into pieces, 128 tiles are not.
START_TEST(a_tail_is_made_where_it_helps)
{
    struct error error;
    struct backward_load load = {.processors = 128, .heads = 2, .section = 2, .repeats = 1};
    struct backward_worklist list = dense_list(4096);
    ck_assert_int_eq(backward_worklist_tail(&list, &load, &error), STATUS_OK);
    ck_assert_int_eq(list.tail_heads, 2);
    ck_assert_int_eq(list.tail_count, 2 * list.tile_count);
    load.heads = 4;
    backward_worklist_fini(&list);
    list = dense_list(4096);
    ck_assert_int_eq(backward_worklist_tail(&list, &load, &error), STATUS_OK);
    ck_assert_int_eq(list.tail_count, 0);
    load.heads = 5; // 160 tiles: one full round of thread blocks, and 32 more
    ck_assert_int_eq(backward_worklist_tail(&list, &load, &error), STATUS_OK);
    ck_assert_int_gt(list.tail_count, list.tile_count);
    backward_worklist_fini(&list);
}
END_TEST

// ---- time ----

static int64_t steps_of_tiles(const struct backward_worklist *list)
{
    int64_t steps = 0;
    for (int32_t i = 0; i < list->tile_count; i++)
        steps += list->tiles[i].steps;
    return steps;
}

static int64_t time_of(const struct backward_worklist *list, int32_t processors, int32_t heads,
                       int32_t repeats)
{
    const struct backward_load load = {
        .processors = processors, .heads = heads, .section = 1, .repeats = repeats};
    return backward_worklist_time(list, &load);
}

START_TEST(time_is_that_of_steps_and_thread_blocks)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {
        .q_len = 400, .kv_len = 400, .left = SLICE_UNBOUNDED, .right = SLICE_UNBOUNDED};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, &slice, 1, cut, &error), STATUS_OK);
    int64_t steps = steps_of_tiles(&list);
    // One processor runs one thread block after the other. Each adds a fixed time to its steps.
    int64_t one = time_of(&list, 1, 8, 1), shared = time_of(&list, 1, 2, 4);
    int64_t block = (one - 8 * steps) / (8 * list.tile_count);
    ck_assert_int_gt(block, 0);
    ck_assert_int_eq(one, 8 * (steps + list.tile_count * block));
    ck_assert_int_eq(shared, 8 * steps + 2 * list.tile_count * block);
    // With one thread block per processor, the longest one determines the time.
    ck_assert_int_eq(time_of(&list, 8 * list.tile_count, 8, 1), list.tiles[0].steps + block);
    for (int32_t processors = 2; processors < 40; processors++) {
        int64_t time = time_of(&list, processors, 8, 1);
        ck_assert_int_ge(time * processors, one);
        ck_assert_int_le(time, one / processors + list.tiles[0].steps + block);
    }
    backward_worklist_fini(&list);
}
END_TEST

START_TEST(time_counts_the_tail)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {.q_len = 6000, .kv_len = 6000, .left = SLICE_UNBOUNDED, .right = 0};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, &slice, 1, cut, &error), STATUS_OK);
    const struct backward_load load = {
        .processors = list.tile_count - 1, .heads = 1, .section = 1, .repeats = 1};
    ck_assert_int_eq(backward_worklist_tail(&list, &load, &error), STATUS_OK);
    ck_assert_int_gt(list.tail_count, 0);
    // Without a tail, the time would be at least that of the longest tile.
    ck_assert_int_lt(backward_worklist_time(&list, &load), list.tiles[0].steps);
    backward_worklist_fini(&list);
}
END_TEST

#define RANKS      4
#define CHUNK_ROWS 16

// Index of the part of a causal sequence that contains a memory row. The sequence has 2 * RANKS
// parts. Rank r has part r and the mirrored part 2 * RANKS - 1 - r, next to each other in memory.
static int part_of(int64_t row)
{
    int place = (int)(row / CHUNK_ROWS);
    return place % 2 == 0 ? place / 2 : 2 * RANKS - 1 - place / 2;
}

START_TEST(every_tile_meets_a_sequence_from_its_end)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slices[4 * RANKS * RANKS];
    struct backward_cut asked = {.q_rows = 8, .kv_rows = 8};
    int32_t count = 0;
    for (int q = 0; q < 2 * RANKS; q++)
        for (int kv = 0; kv < 2 * RANKS; kv++)
            if (part_of(kv * CHUNK_ROWS) <= part_of(q * CHUNK_ROWS))
                slices[count++] = (struct slice){.q_row = q * CHUNK_ROWS,
                                                 .q_len = CHUNK_ROWS,
                                                 .kv_row = kv * CHUNK_ROWS,
                                                 .kv_len = CHUNK_ROWS,
                                                 .left = SLICE_UNBOUNDED,
                                                 .right = q == kv ? 0 : SLICE_UNBOUNDED};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, slices, count, asked, &error),
                     STATUS_OK);
    ck_assert_int_eq(list.fragment_count, 2 * RANKS * (2 * RANKS + 1));
    for (int32_t i = 0; i < list.tile_count; i++) {
        const struct backward_fragment *f = &list.fragments[list.tiles[i].fragment];
        for (int32_t k = 1; k < list.tiles[i].fragment_count; k++)
            ck_assert_int_lt(part_of(f[k].q_row), part_of(f[k - 1].q_row));
    }
    backward_worklist_fini(&list);
}
END_TEST

START_TEST(empty_slices_make_no_tile)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slices[2] = {{.q_len = 5, .kv_len = 0}, {.q_len = 0, .kv_len = 5}};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, slices, 2, cut, &error), STATUS_OK);
    ck_assert_int_eq(list.tile_count, 0);
    ck_assert_int_eq(list.block_count, 0);
    backward_worklist_fini(&list);
}
END_TEST

START_TEST(more_queries_than_fit_are_refused)
{
    struct backward_worklist list = {0};
    struct error error;
    struct attention_shape shape = {.row_step = 1};
    struct slice slice = {.q_len = (INT64_C(1) << 29) + 1, .kv_len = 1};
    ck_assert_int_eq(backward_worklist_build(&list, &shape, &slice, 1, cut, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    backward_worklist_fini(&list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worklist_backward");
    TCase *tcase = tcase_create("worklist_backward");
    tcase_add_test(tcase, covers_what_is_visible);
    tcase_add_test(tcase, chains_are_no_longer_than_needed);
    tcase_add_test(tcase, a_tail_has_the_same_work);
    tcase_add_test(tcase, a_tail_is_made_where_it_helps);
    tcase_add_test(tcase, time_is_that_of_steps_and_thread_blocks);
    tcase_add_test(tcase, time_counts_the_tail);
    tcase_add_test(tcase, every_tile_meets_a_sequence_from_its_end);
    tcase_add_test(tcase, empty_slices_make_no_tile);
    tcase_add_test(tcase, more_queries_than_fit_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
