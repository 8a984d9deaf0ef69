// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/worklist_tail.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/clocks.h"

// Fixed time of a thread block beside its steps, in steps.
#define UNIT_STEPS  5
// More thread blocks per processor than this balance the load without a tail.
#define ROUNDS_MOST 62
// Thread blocks of the tail per processor, before tiles are cut.
#define TAIL_ROUNDS 2
// A tail must save 1 / GAIN_PARTS of the time to be worth its space in the tables.
#define GAIN_PARTS  100
#define PIECES_MOST 32 // of a tile, without turns

// Largest piece of a tile: share / 16 of the remaining steps per processor, or 1 / parts of the
// longest tile, whichever is more.
struct rule {
    int32_t share, parts;
};

static const struct rule rules[] = {{0, 1}, {0, 2},   {0, 3},   {0, 4},
                                    {0, 8}, {11, 16}, {16, 16}, {22, 16}};
#define RULES (int)(sizeof(rules) / sizeof(*rules))

// ---- simulation ---------------------------------------------------------------------------------

// Tile i in processing order.
static const struct backward_tile *tile_in_order(const struct backward_worklist *list,
                                                 const struct backward_load *load, int32_t i)
{
    return &list->tiles[load->turns ? list->tile_count - 1 - i : i];
}

static void unit_put(struct clocks *clocks, int64_t steps)
{
    clocks_put(clocks, steps + UNIT_STEPS);
}

// Simulates whole tiles of heads first..end - 1.
static void heads_put(const struct backward_worklist *list, const struct backward_load *load,
                      int32_t first, int32_t end, struct clocks *clocks)
{
    for (; first < end; first += load->section) {
        int32_t heads = end - first < load->section ? end - first : load->section;
        for (int32_t i = 0; i < list->tile_count; i++)
            for (int32_t head = 0; head < heads; head++)
                unit_put(clocks, tile_in_order(list, load, i)->steps * load->repeats);
    }
}

// ---- pieces -------------------------------------------------------------------------------------

// Decides how the tiles of a tail are cut, one after the other in processing order.
struct cutter {
    const struct backward_load *load;
    struct rule rule;
    int64_t least; // steps of a piece that is short enough
    int64_t left;  // steps from the current tile on, of all heads of the tail
    int32_t heads;
};

// A tile is cut into equal pieces, or into pieces of `length` steps, the last one shorter.
struct cut {
    int32_t pieces;
    int64_t length; // 0: equal pieces
};

static struct cutter cutter_begin(const struct backward_worklist *list,
                                  const struct backward_load *load, struct rule rule, int32_t heads)
{
    int64_t longest = 0, all = 0;
    for (int32_t i = 0; i < list->tile_count; i++) {
        int64_t steps = list->tiles[i].steps * load->repeats;
        longest = steps > longest ? steps : longest;
        all += steps;
    }
    return (struct cutter){load, rule, (longest + rule.parts - 1) / rule.parts, all * heads, heads};
}

// Returns how the next tile is cut. With turns, all tiles are cut at the same steps, so that a
// piece of one tile does not wait for the end of a piece of another.
static struct cut cutter_next(struct cutter *cutter, const struct backward_tile *tile)
{
    int64_t steps = tile->steps * cutter->load->repeats;
    int64_t most = cutter->left / cutter->load->processors * cutter->rule.share / 16;
    most = most > cutter->least ? most : cutter->least;
    int64_t pieces = most > 0 ? (steps + most - 1) / most : 1;
    cutter->left -= steps * cutter->heads;
    if (cutter->load->turns)
        return (struct cut){(int32_t)pieces, most};
    pieces = pieces < tile->steps ? pieces : tile->steps;
    return (struct cut){(int32_t)(pieces < PIECES_MOST ? pieces : PIECES_MOST), 0};
}

// First step of a piece of a tile; the end of the tile for piece == cut.pieces.
static int64_t piece_begin(const struct backward_tile *tile, struct cut cut, int32_t piece)
{
    if (cut.length == 0)
        return tile->steps * piece / cut.pieces;
    return piece < cut.pieces ? piece * cut.length : tile->steps;
}

// Simulates the tail from the given clocks on. Returns the time at which the last processor is
// done.
static int64_t tail_end(const struct backward_worklist *list, const struct backward_load *load,
                        struct rule rule, int32_t heads, struct clocks *clocks)
{
    struct cutter cutter = cutter_begin(list, load, rule, heads);
    for (int32_t i = 0; i < list->tile_count; i++) {
        const struct backward_tile *tile = tile_in_order(list, load, i);
        struct cut cut = cutter_next(&cutter, tile);
        for (int32_t k = 0; k < cut.pieces; k++) {
            int32_t piece = load->turns ? cut.pieces - 1 - k : k;
            int64_t steps = piece_begin(tile, cut, piece + 1) - piece_begin(tile, cut, piece);
            for (int32_t head = 0; head < heads; head++)
                unit_put(clocks, steps * load->repeats);
        }
    }
    return clocks_end(clocks);
}

// Average time at which the processors are done: a lower bound of tail_end().
static int64_t tail_mean(const struct backward_worklist *list, const struct backward_load *load,
                         struct rule rule, int32_t heads, const struct clocks *clocks)
{
    struct cutter cutter = cutter_begin(list, load, rule, heads);
    int64_t steps = 0, all = 0;
    for (int32_t i = 0; i < list->tile_count; i++) {
        const struct backward_tile *tile = tile_in_order(list, load, i);
        steps += tile->steps * load->repeats + cutter_next(&cutter, tile).pieces * UNIT_STEPS;
    }
    for (int32_t i = 0; i < clocks->count; i++)
        all += clocks->when[i];
    return (all + steps * heads) / clocks->count;
}

// ---- the tail -----------------------------------------------------------------------------------

static enum status out_of_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of tiles");
}

// Adds the fragments of a piece, which has steps begin..end - 1 of a tile. Steps count from the
// tile's first fragment on, in a fragment from its last block on.
static void piece_fragments(struct backward_worklist *list, const struct backward_tile *tile,
                            int64_t begin, int64_t end, struct backward_tile *piece)
{
    for (int32_t i = 0; i < tile->fragment_count; i++) {
        struct backward_fragment f = list->fragments[tile->fragment + i];
        int64_t blocks = f.block_end - f.block_begin;
        int64_t from = begin > 0 ? begin : 0, to = end < blocks ? end : blocks;
        begin -= blocks;
        end -= blocks;
        if (from >= to)
            continue;
        f.block_begin = f.block_end - (int32_t)to;
        f.block_end -= (int32_t)from;
        f.turn = list->steps;
        list->steps += to - from;
        list->fragments[list->fragment_count++] = f;
        piece->fragment_count++;
    }
}

// Cuts a tile and appends its pieces to the tail, in processing order.
static enum status tile_cut(struct backward_worklist *list, const struct backward_load *load,
                            int32_t number, struct cut cut, struct error *error)
{
    int32_t pieces = cut.pieces;
    int32_t used = list->tile_count + list->tail_count;
    struct backward_tile *tiles =
        array_reserve(list->tiles, sizeof(*tiles), used, pieces, &list->tile_capacity);
    if (!tiles)
        return out_of_memory(error);
    list->tiles = tiles;
    struct backward_tile *tile = &tiles[number];
    // Each cut splits at most one fragment, so this many suffice.
    struct backward_fragment *fragments =
        array_reserve(list->fragments, sizeof(*fragments), list->fragment_count,
                      pieces + tile->fragment_count, &list->fragment_capacity);
    if (!fragments)
        return out_of_memory(error);
    list->fragments = fragments;
    for (int32_t i = 0; i < pieces; i++) {
        struct backward_tile *piece = &tiles[used + i];
        int32_t at = load->turns ? pieces - 1 - i : i;
        int64_t begin = piece_begin(tile, cut, at), end = piece_begin(tile, cut, at + 1);
        *piece = *tile;
        piece->steps = end - begin;
        piece->fragment = list->fragment_count;
        piece->fragment_count = 0;
        piece->piece = i;
        piece->pieces = pieces;
        piece_fragments(list, tile, begin, end, piece);
    }
    tile->pieces = pieces;
    list->tail_count += pieces;
    return STATUS_OK;
}

static enum status tail_make(struct backward_worklist *list, const struct backward_load *load,
                             struct rule rule, int32_t heads, struct error *error)
{
    struct cutter cutter = cutter_begin(list, load, rule, heads);
    int32_t fragment_count = list->fragment_count;
    int64_t steps = list->steps;
    for (int32_t i = 0; i < list->tile_count; i++) {
        int32_t number = load->turns ? list->tile_count - 1 - i : i;
        struct cut cut = cutter_next(&cutter, &list->tiles[number]);
        enum status status = tile_cut(list, load, number, cut, error);
        if (status == STATUS_OK)
            continue;
        list->tail_count = 0;
        list->fragment_count = fragment_count;
        list->steps = steps;
        return status;
    }
    list->tail_heads = heads;
    return STATUS_OK;
}

// The best rule for the tail, and when the last processor is then done.
struct choice {
    const struct rule *rule; // NULL: no tail
    int64_t end;
};

// Compares the rules by simulation. clocks: all 0; trial: memory for as many clocks.
static struct choice rule_choose(const struct backward_worklist *list,
                                 const struct backward_load *load, int32_t heads,
                                 struct clocks *clocks, struct clocks *trial)
{
    size_t bytes = (size_t)clocks->count * sizeof(*clocks->when);
    heads_put(list, load, 0, load->heads - heads, clocks);
    memcpy(trial->when, clocks->when, bytes);
    heads_put(list, load, load->heads - heads, load->heads, trial);
    struct choice best = {NULL, clocks_end(trial)};
    int64_t least = best.end - best.end / GAIN_PARTS;
    for (int i = 0; i < RULES && heads > 0; i++) {
        if ((load->turns && rules[i].share > 0) ||
            tail_mean(list, load, rules[i], heads, clocks) >= least)
            continue;
        memcpy(trial->when, clocks->when, bytes);
        int64_t end = tail_end(list, load, rules[i], heads, trial);
        if (end < least) {
            best = (struct choice){&rules[i], end};
            least = end;
        }
    }
    return best;
}

static bool rounds_are_many(const struct backward_worklist *list, const struct backward_load *load)
{
    return (int64_t)list->tile_count * load->heads > (int64_t)ROUNDS_MOST * load->processors;
}

// Number of heads of the tail; 0: no tail. With turns, heads that are processed at the same time
// delay each other, so the tail has few. If all tiles are equally long, their pieces would wait for
// those of the tile before, so there is no tail.
static int32_t tail_heads(const struct backward_worklist *list, const struct backward_load *load)
{
    int32_t processors = load->processors, tiles = list->tile_count;
    if (tiles == 0 || rounds_are_many(list, load))
        return 0;
    if (load->turns && list->tiles[0].steps == list->tiles[tiles - 1].steps)
        return 0;
    int32_t heads = (TAIL_ROUNDS * processors + tiles - 1) / tiles;
    if (load->turns)
        heads = tiles > processors ? 1 : (processors + tiles / 2) / tiles;
    return heads < load->heads ? heads : load->heads;
}

// Calls rule_choose() with clocks that it allocates. Returns false when memory is short.
static bool rule_find(const struct backward_worklist *list, const struct backward_load *load,
                      int32_t heads, struct choice *choice)
{
    const int32_t processors = load->processors;
    int64_t *when = calloc((size_t)processors, 2 * sizeof(*when));
    if (!when)
        return false;
    struct clocks clocks = {when, processors}, trial = {when + processors, processors};
    *choice = rule_choose(list, load, heads, &clocks, &trial);
    free(when);
    return true;
}

enum status backward_worklist_tail(struct backward_worklist *list, const struct backward_load *load,
                                   struct error *error)
{
    int32_t heads = tail_heads(list, load);
    struct choice choice;
    list->tail_count = list->tail_heads = 0;
    if (heads == 0)
        return STATUS_OK;
    if (!rule_find(list, load, heads, &choice))
        return out_of_memory(error);
    return choice.rule ? tail_make(list, load, *choice.rule, heads, error) : STATUS_OK;
}

int64_t backward_worklist_time(const struct backward_worklist *list,
                               const struct backward_load *load)
{
    struct choice choice;
    if (rounds_are_many(list, load)) {
        int64_t steps = 0;
        for (int32_t i = 0; i < list->tile_count; i++)
            steps += list->tiles[i].steps * load->repeats + UNIT_STEPS;
        return (steps * load->heads + load->processors - 1) / load->processors;
    }
    return rule_find(list, load, tail_heads(list, load), &choice) ? choice.end : -1;
}
