// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/worklist_backward.h"

#include <stdlib.h>
#include <string.h>

struct build {
    struct backward_worklist *list;
    const struct attention_shape *shape;
    const struct slice *slices;
    struct backward_cut cut;
    struct error *error;
};

static enum status out_of_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of tiles");
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int32_t bounded(int64_t x)
{
    return (int32_t)most(-BACKWARD_BOUND, least(x, BACKWARD_BOUND));
}

// ---- blocks of queries --------------------------------------------------------------------------

static enum status count_blocks(const struct build *b)
{
    struct backward_worklist *list = b->list;
    int32_t *blocks =
        array_reserve(list->blocks, sizeof(*blocks), 0, list->q.count + 1, &list->block_capacity);
    if (!blocks)
        return out_of_memory(b->error);
    list->blocks = blocks;
    int64_t total = 0;
    for (int32_t i = 0; i < list->q.count; i++) {
        int64_t length = list->q.all[i].end - list->q.all[i].begin;
        blocks[i] = (int32_t)total;
        total += (length + b->cut.q_rows - 1) / b->cut.q_rows;
        if (length > BACKWARD_BOUND || total > INT32_MAX)
            return error_set(b->error, STATUS_RESOURCE_EXHAUSTED, "more than 2^31 query rows");
    }
    list->block_count = (int32_t)total;
    return STATUS_OK;
}

// ---- tiles --------------------------------------------------------------------------------------

// Sets *fragment to the queries of one interval that see any of `rows` keys of a slice from key
// `first` on. False if none does. The interval lies within the slice.
static bool fragment_set(const struct build *b, const struct slice *slice, int32_t interval,
                         int64_t first, int64_t rows, struct backward_fragment *fragment)
{
    const struct attention_shape *shape = b->shape;
    const struct interval *q = &b->list->q.all[interval];
    // Queries of the slice before the interval.
    int64_t skipped = q->begin - slice->q_row / shape->row_step;
    int64_t diagonal = skipped - slice->offset - first;
    int64_t length = q->end - q->begin;
    int64_t low = slice->left >= SLICE_UNBOUNDED ? -BACKWARD_BOUND : diagonal - slice->left;
    int64_t high = slice->right >= SLICE_UNBOUNDED ? BACKWARD_BOUND : diagonal + slice->right;
    // Queries [begin, end) see some key: low <= j - i <= high for a j in 0..rows - 1.
    int64_t begin = most(0, -high), end = least(length, rows - low);
    if (low > high || begin >= end)
        return false;
    *fragment = (struct backward_fragment){
        .q_row = q->residue + q->begin * shape->row_step,
        .bias = (slice->bias_row + skipped * shape->bias_row_step) * shape->bias_row_stride +
                slice->bias_column + first,
        .turn = b->list->steps,
        .position = diagonal,
        .residue = (int32_t)q->residue,
        .begin = (int32_t)q->begin,
        .q_len = (int32_t)length,
        .low = bounded(low),
        .high = bounded(high),
        .block_begin = (int32_t)(begin / b->cut.q_rows),
        .block_end = (int32_t)((end + b->cut.q_rows - 1) / b->cut.q_rows),
        .block_first = b->list->blocks[interval],
        .interval = interval};
    return true;
}

// Adds the queries of a slice that see a tile, one fragment per interval. `position`: that of the
// tile's first key.
static enum status tile_add_slice(const struct build *b, struct backward_tile *tile,
                                  const struct slice *slice, int64_t position)
{
    struct backward_worklist *list = b->list;
    int64_t step = b->shape->row_step, first = position - slice->kv_row / step;
    int64_t residue = slice->q_row % step, end = slice->q_row / step + slice->q_len;
    int32_t interval = intervals_find(&list->q, residue, slice->q_row / step);
    for (; interval < list->q.count; interval++) {
        const struct interval *q = &list->q.all[interval];
        if (q->residue != residue || q->begin >= end)
            break;
        struct backward_fragment *fragments = array_reserve(
            list->fragments, sizeof(*fragments), list->fragment_count, 1, &list->fragment_capacity);
        if (!fragments)
            return out_of_memory(b->error);
        list->fragments = fragments;
        struct backward_fragment *fragment = &fragments[list->fragment_count];
        if (!fragment_set(b, slice, interval, first, tile->rows, fragment))
            continue;
        int32_t blocks = fragment->block_end - fragment->block_begin;
        tile->steps += blocks;
        list->steps += blocks;
        list->fragment_count++;
    }
    return STATUS_OK;
}

static enum status tile_add(const struct build *b, const struct interval *kv, int64_t position)
{
    struct backward_worklist *list = b->list;
    struct backward_tile *tiles =
        array_reserve(list->tiles, sizeof(*tiles), list->tile_count, 1, &list->tile_capacity);
    if (!tiles)
        return out_of_memory(b->error);
    list->tiles = tiles;
    struct backward_tile *tile = &tiles[list->tile_count];
    *tile = (struct backward_tile){.kv_row = kv->residue + position * b->shape->row_step,
                                   .residue = (int32_t)kv->residue,
                                   .begin = (int32_t)position,
                                   .rows = (int32_t)least(kv->end - position, b->cut.kv_rows),
                                   .fragment = list->fragment_count,
                                   .pieces = 1};
    for (int32_t i = 0; i < kv->covering_count; i++) {
        const struct slice *slice = &b->slices[list->kv.slices[kv->covering + i]];
        enum status status = tile_add_slice(b, tile, slice, position);
        if (status != STATUS_OK)
            return status;
    }
    tile->fragment_count = list->fragment_count - tile->fragment;
    list->tile_count += tile->fragment_count > 0;
    return STATUS_OK;
}

static enum status tiles_cut(const struct build *b)
{
    const struct intervals *kv = &b->list->kv;
    for (int32_t i = 0; i < kv->count; i++)
        for (int64_t at = kv->all[i].begin; at < kv->all[i].end; at += b->cut.kv_rows) {
            enum status status = tile_add(b, &kv->all[i], at);
            if (status != STATUS_OK)
                return status;
        }
    return STATUS_OK;
}

// ---- order of fragments -------------------------------------------------------------------------

// The order of fragments in a tile, see struct backward_tile.
static int compare_fragments(const void *a, const void *b)
{
    const struct backward_fragment *x = a, *y = b;
    int order = compare_numbers(y->tiles, x->tiles);
    if (order == 0)
        order = compare_numbers(y->position, x->position);
    return order != 0 ? order : compare_numbers(y->q_row, x->q_row);
}

static enum status fragments_order(const struct build *b)
{
    struct backward_worklist *list = b->list;
    // Number of tiles that see each interval.
    int32_t *tiles = calloc((size_t)list->q.count, sizeof(*tiles));
    if (!tiles)
        return out_of_memory(b->error);
    for (int32_t i = 0; i < list->fragment_count; i++)
        tiles[list->fragments[i].interval]++;
    for (int32_t i = 0; i < list->fragment_count; i++)
        list->fragments[i].tiles = tiles[list->fragments[i].interval];
    free(tiles);
    for (int32_t i = 0; i < list->tile_count; i++)
        qsort(&list->fragments[list->tiles[i].fragment], (size_t)list->tiles[i].fragment_count,
              sizeof(*list->fragments), compare_fragments);
    return STATUS_OK;
}

// ---- chains -------------------------------------------------------------------------------------

// For sorting the tiles by `begin`, the first column of the bias that a tile reaches.
struct reach {
    int64_t begin;
    int32_t tile;
};

static int compare_reaches(const void *a, const void *b)
{
    const struct reach *x = a, *y = b;
    int order = compare_numbers(x->begin, y->begin);
    return order != 0 ? order : compare_numbers(x->tile, y->tile);
}

// Smallest rectangle of the bias with all elements that a tile or fragment reaches.
struct rectangle {
    int64_t column, column_end, row, row_end;
};

static struct rectangle fragment_rectangle(const struct build *b,
                                           const struct backward_fragment *fragment, int32_t keys)
{
    int64_t stride = most(b->shape->bias_row_stride, 1);
    int64_t row = fragment->bias / stride, column = fragment->bias % stride;
    int64_t step = b->shape->bias_row_step;
    int64_t first = fragment->block_begin * (int64_t)b->cut.q_rows;
    int64_t end = least(fragment->block_end * (int64_t)b->cut.q_rows, fragment->q_len);
    return (struct rectangle){column, column + keys, row + first * step,
                              row + (end - 1) * step + 1};
}

static struct rectangle tile_rectangle(const struct build *b, const struct backward_tile *tile)
{
    struct rectangle all = {INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN};
    for (int32_t i = 0; i < tile->fragment_count; i++) {
        struct rectangle r =
            fragment_rectangle(b, &b->list->fragments[tile->fragment + i], tile->rows);
        all.column = least(all.column, r.column);
        all.column_end = most(all.column_end, r.column_end);
        all.row = least(all.row, r.row);
        all.row_end = most(all.row_end, r.row_end);
    }
    return all;
}

// Chains are found by union-find: `chain` is the parent of a tile, the root is the chain's first
// tile. Returns the root and halves the path to it.
static int32_t chain_of(struct backward_tile *tiles, int32_t tile)
{
    while (tiles[tile].chain != tile)
        tile = tiles[tile].chain = tiles[tiles[tile].chain].chain;
    return tile;
}

static void chain_join(struct backward_tile *tiles, int32_t a, int32_t b)
{
    a = chain_of(tiles, a);
    b = chain_of(tiles, b);
    tiles[(int32_t)most(a, b)].chain = (int32_t)least(a, b);
}

// Joins tiles whose rectangles overlap. Sweeps over the tiles by their first column. `active`:
// rectangles that reach the current column; their tiles, `owners`, lie behind them.
static void chains_join(const struct build *b, struct reach *reaches, struct rectangle *active)
{
    struct backward_tile *tiles = b->list->tiles;
    int32_t *owners = (int32_t *)(active + b->list->tile_count), count = 0;
    for (int32_t i = 0; i < b->list->tile_count; i++) {
        struct rectangle r = tile_rectangle(b, &tiles[reaches[i].tile]);
        int32_t kept = 0;
        for (int32_t k = 0; k < count; k++) {
            if (active[k].column_end <= r.column)
                continue;
            if (active[k].row < r.row_end && r.row < active[k].row_end)
                chain_join(tiles, owners[k], reaches[i].tile);
            active[kept] = active[k];
            owners[kept++] = owners[k];
        }
        active[kept] = r;
        owners[kept] = reaches[i].tile;
        count = kept + 1;
    }
}

static enum status chains_find(const struct build *b)
{
    size_t count = (size_t)b->list->tile_count;
    struct reach *reaches = calloc(count, sizeof(*reaches));
    struct rectangle *active = calloc(count, sizeof(*active) + sizeof(int32_t));
    enum status status = reaches && active ? STATUS_OK : out_of_memory(b->error);
    if (status == STATUS_OK) {
        for (int32_t i = 0; i < b->list->tile_count; i++)
            reaches[i] = (struct reach){tile_rectangle(b, &b->list->tiles[i]).column, i};
        qsort(reaches, count, sizeof(*reaches), compare_reaches);
        chains_join(b, reaches, active);
    }
    free(reaches);
    free(active);
    return status;
}

// ---- order --------------------------------------------------------------------------------------

// Sort key of a tile: chains with the most steps first.
struct rank {
    int64_t chain_steps;
    int32_t chain, index;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    int order = compare_numbers(y->chain_steps, x->chain_steps);
    if (order == 0)
        order = compare_numbers(x->chain, y->chain);
    return order != 0 ? order : compare_numbers(x->index, y->index);
}

// Puts the tiles into the order of the ranks and numbers the chains.
static void tiles_arrange(struct backward_worklist *list, const struct rank *ranks,
                          struct backward_tile *arranged)
{
    int32_t chains = 0;
    for (int32_t i = 0; i < list->tile_count; i++) {
        if (i == 0 || ranks[i].chain != ranks[i - 1].chain)
            list->chains[chains++] = i;
        arranged[i] = list->tiles[ranks[i].index];
        arranged[i].chain = chains - 1;
        arranged[i].keys = i;
    }
    list->chains[chains] = list->tile_count;
    list->chain_count = chains;
    memcpy(list->tiles, arranged, (size_t)list->tile_count * sizeof(*arranged));
}

static enum status tiles_order(const struct build *b)
{
    struct backward_worklist *list = b->list;
    int32_t *chains = array_reserve(list->chains, sizeof(*chains), 0, list->tile_count + 1,
                                    &list->chain_capacity);
    if (!chains)
        return out_of_memory(b->error);
    list->chains = chains;
    size_t count = (size_t)list->tile_count;
    struct rank *ranks = calloc(count, sizeof(*ranks));
    struct backward_tile *arranged = calloc(count, sizeof(*arranged));
    enum status status = ranks && arranged ? STATUS_OK : out_of_memory(b->error);
    if (status == STATUS_OK) {
        for (int32_t i = 0; i < list->tile_count; i++) {
            ranks[i].index = i;
            ranks[i].chain = chain_of(list->tiles, i);
            ranks[ranks[i].chain].chain_steps += list->tiles[i].steps;
        }
        for (int32_t i = 0; i < list->tile_count; i++) // a chain's number is that of its first tile
            ranks[i].chain_steps = ranks[ranks[i].chain].chain_steps;
        qsort(ranks, count, sizeof(*ranks), compare_ranks);
        tiles_arrange(list, ranks, arranged);
    }
    free(ranks);
    free(arranged);
    return status;
}

// ---- all ----------------------------------------------------------------------------------------

static enum status tiles_build(const struct build *b)
{
    struct backward_worklist *list = b->list;
    enum status status = count_blocks(b);
    if (status == STATUS_OK)
        status = tiles_cut(b);
    if (status == STATUS_OK && list->tile_count > 0)
        status = fragments_order(b);
    for (int32_t i = 0; i < list->tile_count; i++)
        list->tiles[i].chain = i;
    if (status == STATUS_OK && b->cut.chained && list->tile_count > 0)
        status = chains_find(b);
    if (status == STATUS_OK && list->tile_count > 0)
        status = tiles_order(b);
    return status;
}

enum status backward_worklist_build(struct backward_worklist *list,
                                    const struct attention_shape *shape, const struct slice *slices,
                                    int32_t slice_count, struct backward_cut cut,
                                    struct error *error)
{
    list->tile_count = list->fragment_count = list->block_count = list->chain_count = 0;
    list->tail_count = list->tail_heads = 0;
    list->steps = 0;
    enum status status =
        intervals_build(&list->q, slices, slice_count, shape->row_step, INTERVAL_Q, error);
    if (status == STATUS_OK)
        status =
            intervals_build(&list->kv, slices, slice_count, shape->row_step, INTERVAL_KV, error);
    struct build b = {list, shape, slices, cut, error};
    return status == STATUS_OK ? tiles_build(&b) : status;
}

void backward_worklist_fini(struct backward_worklist *list)
{
    free(list->tiles);
    free(list->fragments);
    free(list->chains);
    free(list->blocks);
    intervals_fini(&list->q);
    intervals_fini(&list->kv);
    *list = (struct backward_worklist){0};
}
