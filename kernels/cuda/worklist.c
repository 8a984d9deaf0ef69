// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/worklist.h"

#include <stdlib.h>

#include "kernels/cuda/clocks.h"

#define RESIDUE_SHIFT 40 // positions of rows are below 2^40

struct build {
    struct worklist *list;
    const struct attention_shape *shape;
    const struct slice *slices;
    struct work_cut cut;
    struct error *error;
};

static enum status out_of_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of tiles");
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t bounded(int64_t x)
{
    return (int32_t)(x < -WORK_BOUND ? -WORK_BOUND : least(x, WORK_BOUND));
}

// Sets *fragment to the keys of a slice that its queries [begin, begin + rows) see. False if they
// see none.
static bool fragment_set(const struct build *b, const struct slice *slice, int64_t begin,
                         int64_t rows, struct work_fragment *fragment)
{
    const struct attention_shape *shape = b->shape;
    int64_t first, last, other;
    slice_visible(slice, begin, &first, &other);
    slice_visible(slice, begin + rows - 1, &other, &last);
    if (first >= last)
        return false;
    int64_t beyond = b->cut.unit > 0 ? (slice->bias_column + first) % b->cut.unit : 0;
    first -= beyond <= first ? beyond : 0;
    int64_t diagonal = begin - slice->offset - first;
    int64_t bias_row = slice->bias_row + begin * shape->bias_row_step;
    *fragment = (struct work_fragment){
        .kv_row = slice->kv_row + first * shape->row_step,
        .bias = bias_row * shape->bias_row_stride + slice->bias_column + first,
        .keys = bounded(last - first),
        .stored = bounded(slice->kv_len - first),
        .low = slice->left >= SLICE_UNBOUNDED ? -WORK_BOUND : bounded(diagonal - slice->left),
        .high =
            slice->right >= SLICE_UNBOUNDED ? WORK_BOUND : bounded(diagonal + slice->right + 1)};
    return true;
}

static enum status tile_add_slice(const struct build *b, struct work_tile *tile,
                                  const struct slice *slice, int64_t begin)
{
    struct worklist *list = b->list;
    struct work_fragment *fragments = array_reserve(
        list->fragments, sizeof(*fragments), list->fragment_count, 1, &list->fragment_capacity);
    if (!fragments)
        return out_of_memory(b->error);
    list->fragments = fragments;
    struct work_fragment *fragment = &fragments[list->fragment_count];
    if (!fragment_set(b, slice, begin, tile->rows, fragment))
        return STATUS_OK;
    tile->blocks += (fragment->keys + b->cut.keys - 1) / b->cut.keys;
    list->fragment_count++;
    return STATUS_OK;
}

static enum status tile_add(const struct build *b, const struct interval *q,
                            const int32_t *covering, int64_t position, int64_t rows)
{
    struct worklist *list = b->list;
    struct work_tile *tiles =
        array_reserve(list->tiles, sizeof(*tiles), list->tile_count, 1, &list->tile_capacity);
    if (!tiles)
        return out_of_memory(b->error);
    list->tiles = tiles;
    struct work_tile *tile = &tiles[list->tile_count];
    *tile = (struct work_tile){.q_row = q->residue + position * b->shape->row_step,
                               .rows = (int32_t)rows,
                               .fragment = list->fragment_count};
    for (int32_t i = 0; i < q->covering_count; i++) {
        const struct slice *slice = &b->slices[covering[i]];
        enum status status =
            tile_add_slice(b, tile, slice, position - slice->q_row / b->shape->row_step);
        if (status != STATUS_OK)
            return status;
    }
    tile->fragment_count = list->fragment_count - tile->fragment;
    if (tile->fragment_count == 0)
        return STATUS_OK;
    list->fragments[list->fragment_count - 1].last = true;
    list->tile_count++;
    return STATUS_OK;
}

// Rows of the next tile, with `rows` left in its interval and rows_behind in later ones. The first
// tile gets the remainder: under a causal mask it sees the fewest keys.
static int64_t tile_rows(const struct build *b, int64_t rows, int64_t rows_behind)
{
    int64_t most = rows + rows_behind <= b->cut.last ? b->cut.part : b->cut.rows;
    return rows % most > 0 ? rows % most : most;
}

// Cuts an interval into tiles. `behind`: rows of later intervals.
static enum status interval_cut(const struct build *b, const struct interval *q,
                                const int32_t *covering, int64_t behind)
{
    for (int64_t at = q->begin, rows; at < q->end; at += rows) {
        rows = tile_rows(b, q->end - at, behind);
        enum status status = tile_add(b, q, covering, at, rows);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status tiles_cut(const struct build *b, const struct intervals *intervals)
{
    int64_t behind = 0;
    for (int32_t i = 0; i < intervals->count; i++)
        behind += intervals->all[i].end - intervals->all[i].begin;
    for (int32_t i = 0; i < intervals->count; i++) {
        const struct interval *q = &intervals->all[i];
        behind -= q->end - q->begin;
        enum status status = interval_cut(b, q, intervals->slices + q->covering, behind);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

// Most expensive first; then more rows first; then in row order.
static int compare_tiles(const void *a, const void *b)
{
    const struct work_tile *x = a, *y = b;
    int order = compare_numbers(y->blocks, x->blocks);
    if (order == 0)
        order = compare_numbers(y->rows, x->rows);
    return order != 0 ? order : compare_numbers(x->q_row, y->q_row);
}

static void tiles_sort(struct worklist *list, int32_t begin, int32_t end,
                       int (*compare)(const void *, const void *))
{
    if (end > begin)
        qsort(list->tiles + begin, (size_t)(end - begin), sizeof(*list->tiles), compare);
}

enum status worklist_build(struct worklist *list, const struct attention_shape *shape,
                           const struct slice *slices, int32_t slice_count, struct work_cut cut,
                           struct error *error)
{
    list->tile_count = 0;
    list->fragment_count = 0;
    struct build b = {list, shape, slices, cut, error};
    struct intervals intervals = {0};
    enum status status =
        intervals_build(&intervals, slices, slice_count, shape->row_step, INTERVAL_Q, error);
    if (status == STATUS_OK)
        status = tiles_cut(&b, &intervals);
    intervals_fini(&intervals);
    if (status == STATUS_OK)
        tiles_sort(list, 0, list->tile_count, compare_tiles);
    return status;
}

// ---- order --------------------------------------------------------------------------------------

// The order in which the tiles were cut.
static int compare_cuts(const void *a, const void *b)
{
    const struct work_tile *x = a, *y = b;
    return compare_numbers(x->fragment, y->fragment);
}

// A range of keys, numbered so that keys of one residue are consecutive.
struct reach {
    int64_t begin, end;
};

// Smallest range with all keys of a tile.
static struct reach tile_reach(const struct worklist *list, const struct work_tile *tile,
                               int64_t row_step)
{
    struct reach reach = {INT64_MAX, INT64_MIN};
    for (int32_t i = 0; i < tile->fragment_count; i++) {
        const struct work_fragment *f = &list->fragments[tile->fragment + i];
        int64_t begin = (f->kv_row % row_step << RESIDUE_SHIFT) + f->kv_row / row_step;
        reach.begin = least(reach.begin, begin);
        reach.end = begin + f->keys > reach.end ? begin + f->keys : reach.end;
    }
    return reach;
}

// If the ranges overlap, extends `a` to contain both and returns true.
static bool reach_join(struct reach *a, struct reach b)
{
    if (b.begin >= a->end || a->begin >= b.end)
        return false;
    a->begin = least(a->begin, b.begin);
    a->end = b.end > a->end ? b.end : a->end;
    return true;
}

void worklist_order(struct worklist *list, int64_t row_step, int64_t keys_near, int64_t blocks_last)
{
    int64_t keys = 0, left = 0;
    int32_t first = 0;
    tiles_sort(list, 0, list->tile_count, compare_cuts);
    for (int32_t i = 0; i < list->tile_count; i++)
        left += list->tiles[i].blocks;
    struct reach run = {0, 0};
    for (int32_t i = 0; i < list->tile_count; left -= list->tiles[i++].blocks) {
        struct reach reach = tile_reach(list, &list->tiles[i], row_step);
        if (reach_join(&run, reach))
            continue;
        keys += run.end - run.begin;
        run = reach;
        if (keys < keys_near || left < blocks_last)
            continue;
        tiles_sort(list, first, i, compare_tiles);
        first = i;
        keys = 0;
    }
    tiles_sort(list, first, list->tile_count, compare_tiles);
}

// ---- time ---------------------------------------------------------------------------------------

static int64_t tile_time(const struct work_tile *tile, const struct work_load *load)
{
    int32_t groups = (tile->rows + WORK_GROUP_ROWS - 1) / WORK_GROUP_ROWS;
    return (int64_t)tile->blocks * load->group_time[groups - 1] + load->tile_time;
}

int64_t worklist_time(const struct worklist *list, const struct work_load *load)
{
    const int32_t count = load->processors;
    struct clocks clocks = {calloc((size_t)count, sizeof(*clocks.when)), count};
    if (!clocks.when)
        return -1;
    for (int32_t i = 0; i < load->sections; i++) {
        int32_t left = load->heads - i * load->section;
        int32_t heads = i < load->sections - 1 ? load->section : left;
        for (int32_t t = 0; t < list->tile_count; t++)
            for (int32_t head = 0; head < heads; head++)
                clocks_put(&clocks, tile_time(&list->tiles[t], load));
    }
    int64_t end = clocks_end(&clocks);
    free(clocks.when);
    return end;
}

void worklist_fini(struct worklist *list)
{
    free(list->tiles);
    free(list->fragments);
    *list = (struct worklist){0};
}
