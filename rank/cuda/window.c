// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/window.h"

#include <stdlib.h>
#include <string.h>

// Alignment of every piece, as in the arena, for fast kernels and copies.
#define ALIGNMENT 256

int64_t window_region_packed(const struct region *r)
{
    return r->rows > 1 ? (region_total(r) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
}

int64_t window_packed_bytes(const struct plan *plan, const struct op *op)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        bytes += window_region_packed(&t->send) + window_region_packed(&t->receive);
    }
    return bytes;
}

int64_t window_staging_bytes(const struct plan *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int64_t bytes = window_packed_bytes(plan, &plan->ops[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static enum status bytes_add(size_t *total, int64_t bytes, struct error *error)
{
    if (bytes < 0 || bytes > INT64_MAX / 2 || *total > (size_t)INT64_MAX / 2)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "a window of %zu and %lld bytes exceeds the address space", *total,
                         (long long)bytes);
    *total += ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return STATUS_OK;
}

// ---- the layout ---------------------------------------------------------------------------------

static bool numbers_grow(int64_t **numbers, int *max, int count)
{
    if (count <= *max)
        return true;
    free(*numbers);
    *numbers = malloc((size_t)count * sizeof(**numbers));
    *max = *numbers ? count : 0;
    return *numbers;
}

static bool lands_in_place(const struct plan *plan, const struct transfer *t)
{
    return t->peer != plan->rank && t->receive.rows <= 1 && region_total(&t->receive) > 0;
}

static enum status layout_set(struct window *w, const struct plan *plan, struct error *error)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->buffer_count; i++)
        w->offsets[i] = -1;
    for (int32_t i = 0; i < plan->transfer_count; i++)
        if (lands_in_place(plan, &plan->transfers[i]))
            w->offsets[plan->transfers[i].receive.buffer] = 0;
    enum status status = bytes_add(&bytes, window_staging_bytes(plan), error);
    w->staging = 0;
    for (int i = 0; i < plan->buffer_count && status == STATUS_OK; i++)
        if (w->offsets[i] == 0) {
            const struct plan_buffer *buffer = &plan->buffers[i];
            w->offsets[i] = (int64_t)bytes + buffer->before;
            status = bytes_add(&bytes, buffer->before + buffer->bytes + buffer->after, error);
        }
    w->bytes = bytes;
    return status;
}

// ---- where messages land ------------------------------------------------------------------------

// Counts the messages from each peer, and to each peer.
static void landings_count(struct window *w, const struct plan *plan)
{
    memset(&w->told, 0, sizeof(w->told));
    for (int32_t i = 0; i < plan->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[i];
        if (t->peer == plan->rank)
            continue;
        w->told.count[t->peer] += region_total(&t->receive) > 0;
        w->told.send_count[t->peer] += region_total(&t->send) > 0;
    }
    w->told.window_bytes = w->bytes;
}

static void op_landings(const struct window *w, const struct plan *plan, const struct op *op,
                        int64_t *next[WORLD_SIZE_MAX])
{
    int64_t staged = w->staging;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        staged += window_region_packed(&t->send);
        int64_t packed = window_region_packed(&t->receive);
        if (t->peer != plan->rank && region_total(&t->receive) > 0)
            *next[t->peer]++ = packed ? staged : w->offsets[t->receive.buffer] + t->receive.offset;
        staged += packed;
    }
}

static enum status landings_set(struct window *w, const struct plan *plan, struct error *error)
{
    int64_t *next[WORLD_SIZE_MAX];
    if (!numbers_grow(&w->landings, &w->landings_max, plan->transfer_count + 1))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d transfers",
                         plan->transfer_count);
    landings_count(w, plan);
    int64_t *at = w->landings;
    for (int peer = 0; peer < WORLD_SIZE_MAX; peer++) {
        w->told.offsets[peer] = next[peer] = at;
        at += w->told.count[peer];
    }
    for (int32_t i = 0; i < plan->op_count; i++)
        op_landings(w, plan, &plan->ops[i], next);
    return STATUS_OK;
}

enum status window_set(struct window *w, const struct plan *plan, struct error *error)
{
    if (!numbers_grow(&w->offsets, &w->buffers_max, plan->buffer_count + 1))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d buffers",
                         plan->buffer_count);
    enum status status = layout_set(w, plan, error);
    return status == STATUS_OK ? landings_set(w, plan, error) : status;
}

void window_fini(struct window *w)
{
    free(w->offsets);
    free(w->landings);
    *w = (struct window){0};
}
