// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/window.h"

#include <stdlib.h>
#include <string.h>

// Alignment of buffers in bytes, as in the arena, for fast kernels and copies.
#define ALIGNMENT        256
// Alignment of packed regions, which kernels read and write. It is small, because regions without
// gaps between them are sent in one copy.
#define PACKED_ALIGNMENT 16
// An exchange is not packed if it needs at most COPIES_MOST copies to each peer and its pieces have
// at least PIECE_BYTES bytes. A copy takes the host 3 us, while packing is one launch for all
// regions; copies of shorter pieces are slower. Both limits are estimates.
#define COPIES_MOST      24
#define PIECE_BYTES      64

// ---- staging memory -----------------------------------------------------------------------------

static int64_t aligned(int64_t bytes, int64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

// Number of copies that an unpacked region needs; 0: its pieces are too short.
static int64_t copies_of(const struct region *r)
{
    if (r->rows <= 1)
        return 1;
    return r->bytes < PIECE_BYTES ? 0 : r->block_stride % r->stride == 0 ? 1 : region_blocks(r);
}

// True if an exchange is not packed.
static bool needs_no_packing(const struct plan *plan, const struct op *op)
{
    int64_t copies[WORLD_SIZE_MAX] = {0};
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        int64_t sends = copies_of(&t->send), receives = copies_of(&t->receive);
        copies[t->peer] += sends > receives ? sends : receives;
        if (sends == 0 || receives == 0 || copies[t->peer] > COPIES_MOST)
            return false;
    }
    return true;
}

struct strides region_strides(const struct region *r)
{
    if (r->rows <= 1)
        return (struct strides){0};
    return (struct strides){r->bytes, r->rows, r->stride, r->blocks, r->block_stride};
}

// Bytes of staging memory for one side of a transfer in a packed exchange; 0: not packed.
static int64_t packed_bytes(const struct plan *plan, const struct transfer *t, bool sends)
{
    const struct region *r = sends ? &t->send : &t->receive;
    const struct region *other = sends ? &t->receive : &t->send;
    if (r->rows <= 1 || (t->peer == plan->rank && other->rows <= 1))
        return 0;
    return aligned(region_total(r), PACKED_ALIGNMENT);
}

void staging_start(struct staging *s, const struct plan *plan, const struct op *op, bool peer)
{
    int64_t sizes[2][WORLD_SIZE_MAX] = {0};
    s->none = peer && needs_no_packing(plan, op);
    for (int32_t i = 0; i < op->transfer_count && !s->none; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        sizes[0][t->peer] += packed_bytes(plan, t, false);
        if (t->peer != plan->rank)
            sizes[1][t->peer] += packed_bytes(plan, t, true);
    }
    s->bytes = 0;
    for (int sends = 0; sends < 2; sends++)
        for (int rank = 0; rank < WORLD_SIZE_MAX; rank++) {
            s->next[sends][rank] = s->bytes;
            s->bytes += aligned(sizes[sends][rank], ALIGNMENT);
        }
}

int64_t staging_take(struct staging *s, const struct plan *plan, const struct transfer *t,
                     bool sends)
{
    int64_t bytes = s->none ? 0 : packed_bytes(plan, t, sends);
    bool own = t->peer == plan->rank;
    int64_t *next = &s->next[sends && !own][t->peer], place = *next;
    if (bytes == 0)
        return -1;
    *next += own && sends ? 0 : bytes;
    return place;
}

int64_t window_staging_bytes(const struct plan *plan, bool peer)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        struct staging s;
        if (plan->ops[i].kind != OP_EXCHANGE)
            continue;
        staging_start(&s, plan, &plan->ops[i], peer);
        most = s.bytes > most ? s.bytes : most;
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

// Returns `old` if its room, *max elements, suffices; else frees it and returns zeroed room for
// `count` elements. NULL: memory is short.
static void *grown(void *old, int *max, int count, size_t bytes)
{
    if (count <= *max)
        return old;
    free(old);
    void *room = calloc((size_t)count, bytes);
    *max = room ? count : 0;
    return room;
}

// Marks the buffers that an exchange receives into directly: offset 0 until layout_set() places
// them.
static void op_buffers(struct window *w, const struct plan *plan, const struct op *op)
{
    struct staging s;
    staging_start(&s, plan, op, true);
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if (t->peer != plan->rank && region_total(&t->receive) > 0 &&
            (s.none || t->receive.rows <= 1))
            w->offsets[t->receive.buffer] = 0;
    }
}

static enum status layout_set(struct window *w, const struct plan *plan, struct error *error)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->buffer_count; i++)
        w->offsets[i] = -1;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE)
            op_buffers(w, plan, &plan->ops[i]);
    enum status status = bytes_add(&bytes, window_staging_bytes(plan, true), error);
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

// True if the exchange itself moves the transfer's bytes. In a packed exchange, packing and
// unpacking do a local copy with a side in several pieces.
static bool is_exchanged(const struct plan *plan, const struct staging *s, const struct transfer *t)
{
    return s->none || t->peer != plan->rank || (t->send.rows <= 1 && t->receive.rows <= 1);
}

// Bytes that the largest exchange sends, local copies included.
static size_t exchange_bytes_max(const struct plan *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        struct staging s;
        int64_t bytes = 0;
        if (op->kind != OP_EXCHANGE)
            continue;
        staging_start(&s, plan, op, true);
        for (int32_t k = 0; k < op->transfer_count; k++) {
            const struct transfer *t = &plan->transfers[op->transfer_first + k];
            bytes += is_exchanged(plan, &s, t) ? region_total(&t->send) : 0;
        }
        most = bytes > most ? bytes : most;
    }
    return (size_t)most;
}

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
    w->told.captured = plan->c.graph;
    w->told.exchange_bytes = exchange_bytes_max(plan);
}

// Appends the destinations of an exchange's received messages to the list of each peer, next[peer].
static void op_landings(const struct window *w, const struct plan *plan, const struct op *op,
                        struct message_place *next[WORLD_SIZE_MAX])
{
    struct staging s;
    staging_start(&s, plan, op, true);
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        (void)staging_take(&s, plan, t, true);
        int64_t packed = staging_take(&s, plan, t, false);
        if (t->peer == plan->rank || region_total(&t->receive) == 0)
            continue;
        struct message_place place = {.offset = w->staging + packed};
        if (packed < 0)
            place = (struct message_place){w->offsets[t->receive.buffer] + t->receive.offset,
                                           region_strides(&t->receive)};
        *next[t->peer]++ = place;
    }
}

static enum status landings_set(struct window *w, const struct plan *plan, struct error *error)
{
    struct message_place *next[WORLD_SIZE_MAX];
    w->landings =
        grown(w->landings, &w->landings_max, plan->transfer_count + 1, sizeof(*w->landings));
    if (!w->landings)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d transfers",
                         plan->transfer_count);
    landings_count(w, plan);
    struct message_place *at = w->landings;
    for (int peer = 0; peer < WORLD_SIZE_MAX; peer++) {
        w->told.places[peer] = next[peer] = at;
        at += w->told.count[peer];
    }
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE)
            op_landings(w, plan, &plan->ops[i], next);
    return STATUS_OK;
}

enum status window_set(struct window *w, const struct plan *plan, struct error *error)
{
    w->offsets = grown(w->offsets, &w->buffers_max, plan->buffer_count + 1, sizeof(*w->offsets));
    if (!w->offsets)
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
