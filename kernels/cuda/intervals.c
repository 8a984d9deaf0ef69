// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/intervals.h"

#include <stdlib.h>
#include <string.h>

// Rows of a slice on one side, in the terms of struct interval.
struct slice_rows {
    int64_t residue, begin, end;
    int32_t slice;
};

// A position at which a slice begins or ends.
struct cut {
    int64_t residue, position;
};

struct sweep {
    struct slice_rows *runs; // sorted
    struct cut *cuts;        // sorted
    int32_t *active;         // indices of runs that cover the current interval
    int32_t run_count, run_next, active_count;
};

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_runs(const void *a, const void *b)
{
    const struct slice_rows *x = a, *y = b;
    int order = compare_numbers(x->residue, y->residue);
    if (order == 0)
        order = compare_numbers(x->begin, y->begin);
    return order != 0 ? order : compare_numbers(x->slice, y->slice);
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    int order = compare_numbers(x->residue, y->residue);
    return order != 0 ? order : compare_numbers(x->position, y->position);
}

static int compare_indices(const void *a, const void *b)
{
    return compare_numbers(*(const int32_t *)a, *(const int32_t *)b);
}

static enum status out_of_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of tiles");
}

void *array_reserve(void *array, size_t size, int32_t count, int32_t more, int32_t *capacity)
{
    int32_t wanted, grown;
    if (__builtin_add_overflow(count, more, &wanted))
        return NULL;
    if (array && wanted <= *capacity)
        return array;
    if (__builtin_add_overflow(wanted, wanted / 2 + 64, &grown))
        return NULL;
    void *moved = realloc(array, (size_t)grown * size);
    if (moved)
        *capacity = grown;
    return moved;
}

// ---- sweep --------------------------------------------------------------------------------------

static void sweep_fini(struct sweep *sweep)
{
    free(sweep->runs);
    free(sweep->cuts);
    free(sweep->active);
}

static void sweep_add(struct sweep *sweep, const struct slice *slice, int32_t index,
                      int64_t row_step, enum interval_side side)
{
    int64_t row = side == INTERVAL_Q ? slice->q_row : slice->kv_row;
    int64_t length = side == INTERVAL_Q ? slice->q_len : slice->kv_len;
    struct slice_rows run = {row % row_step, row / row_step, row / row_step + length, index};
    sweep->cuts[2 * sweep->run_count] = (struct cut){run.residue, run.begin};
    sweep->cuts[2 * sweep->run_count + 1] = (struct cut){run.residue, run.end};
    sweep->runs[sweep->run_count++] = run;
}

static enum status sweep_init(struct sweep *sweep, const struct slice *slices, int32_t count,
                              int64_t row_step, enum interval_side side, struct error *error)
{
    *sweep = (struct sweep){0};
    size_t size = (size_t)count + 1;
    sweep->runs = calloc(size, sizeof(*sweep->runs));
    sweep->cuts = calloc(2 * size, sizeof(*sweep->cuts));
    sweep->active = calloc(size, sizeof(*sweep->active));
    if (!sweep->runs || !sweep->cuts || !sweep->active)
        return out_of_memory(error);
    for (int32_t i = 0; i < count; i++)
        if (slices[i].q_len > 0 && slices[i].kv_len > 0)
            sweep_add(sweep, &slices[i], i, row_step, side);
    qsort(sweep->runs, (size_t)sweep->run_count, sizeof(*sweep->runs), compare_runs);
    qsort(sweep->cuts, 2 * (size_t)sweep->run_count, sizeof(*sweep->cuts), compare_cuts);
    return STATUS_OK;
}

// Updates the active runs for the interval that begins at a cut.
static void sweep_to(struct sweep *sweep, const struct cut *cut)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < sweep->active_count; i++) {
        const struct slice_rows *run = &sweep->runs[sweep->active[i]];
        if (run->residue == cut->residue && run->end > cut->position)
            sweep->active[kept++] = sweep->active[i];
    }
    for (; sweep->run_next < sweep->run_count; sweep->run_next++) {
        const struct slice_rows *run = &sweep->runs[sweep->run_next];
        if (run->residue != cut->residue || run->begin != cut->position)
            break;
        sweep->active[kept++] = sweep->run_next;
    }
    sweep->active_count = kept;
}

// ---- list ---------------------------------------------------------------------------------------

static enum status list_add(struct intervals *list, const struct sweep *sweep,
                            const struct cut *cut, struct error *error)
{
    struct interval *all = array_reserve(list->all, sizeof(*all), list->count, 1, &list->capacity);
    if (!all)
        return out_of_memory(error);
    list->all = all;
    int32_t *covering = array_reserve(list->slices, sizeof(*covering), list->slice_count,
                                      sweep->active_count, &list->slice_capacity);
    if (!covering)
        return out_of_memory(error);
    list->slices = covering;
    for (int32_t i = 0; i < sweep->active_count; i++)
        covering[list->slice_count + i] = sweep->runs[sweep->active[i]].slice;
    qsort(covering + list->slice_count, (size_t)sweep->active_count, sizeof(*covering),
          compare_indices);
    all[list->count++] = (struct interval){.residue = cut->residue,
                                           .begin = cut->position,
                                           .end = cut[1].position,
                                           .covering = list->slice_count,
                                           .covering_count = sweep->active_count};
    list->slice_count += sweep->active_count;
    return STATUS_OK;
}

enum status intervals_build(struct intervals *list, const struct slice *slices, int32_t slice_count,
                            int64_t row_step, enum interval_side side, struct error *error)
{
    list->count = 0;
    list->slice_count = 0;
    struct sweep sweep;
    enum status status = sweep_init(&sweep, slices, slice_count, row_step, side, error);
    for (int32_t i = 0; status == STATUS_OK && i + 1 < 2 * sweep.run_count; i++) {
        const struct cut *cut = &sweep.cuts[i];
        if (cut[1].residue != cut->residue || cut[1].position == cut->position)
            continue;
        sweep_to(&sweep, cut);
        if (sweep.active_count > 0)
            status = list_add(list, &sweep, cut, error);
    }
    sweep_fini(&sweep);
    return status;
}

void intervals_fini(struct intervals *list)
{
    free(list->all);
    free(list->slices);
    *list = (struct intervals){0};
}

int32_t intervals_find(const struct intervals *list, int64_t residue, int64_t position)
{
    int32_t low = 0, high = list->count - 1;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct interval *x = &list->all[middle];
        int order = compare_numbers(x->residue, residue);
        if (order < 0 || (order == 0 && x->end <= position))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
