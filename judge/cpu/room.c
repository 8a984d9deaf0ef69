// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"

#define ALIGNMENT 64

// OPERAND_BYTES_MAX: a sequence up to this size is packed as a whole, of a longer one only the
// requested positions. OPERANDS_BYTES_MAX limits all operands; only the last used and the new one
// together may exceed it.
#define OPERAND_BYTES_MAX  ((size_t)16 << 20)
#define OPERANDS_BYTES_MAX ((size_t)96 << 20)
#define OPERANDS_MAX       64

struct operands {
    struct cp_case c; // the case of the operands
    struct operand *all[OPERANDS_MAX];
    int count;
    size_t bytes;
    uint64_t calls;
};

static void operand_drop(struct operands *all, int i)
{
    all->bytes -= all->all[i]->bytes;
    free(all->all[i]->memory);
    free(all->all[i]);
    all->all[i] = all->all[--all->count];
}

static void operands_clear(struct operands *all)
{
    while (all->count > 0)
        operand_drop(all, all->count - 1);
}

void room_fini(struct room *r)
{
    if (r->operands)
        operands_clear(r->operands);
    free(r->operands);
    drawn_destroy(r->drawn);
    free(r->base);
    *r = (struct room){0};
}

static enum status memory_short(size_t bytes, struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu bytes of the reference",
                     bytes);
}

static void *memory_of(size_t bytes)
{
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
}

enum status room_grow(struct room *r, size_t bytes, struct error *error)
{
    if (bytes <= r->bytes)
        return STATUS_OK;
    free(r->base);
    r->bytes = 0;
    r->base = memory_of(bytes);
    if (!r->base)
        return memory_short(bytes, error);
    r->bytes = bytes;
    return STATUS_OK;
}

struct drawn *room_drawn(struct room *r)
{
    if (!r->drawn)
        r->drawn = drawn_create();
    return r->drawn;
}

// ---- operands -----------------------------------------------------------------------------------

static size_t operand_lay_out(struct operand *o)
{
    int64_t across = amx_right_elements(o->d, o->capacity);
    int64_t along = amx_right_elements(o->capacity, o->d);
    uint16_t *elements = o->memory;
    if (elements) {
        o->across = elements;
        o->along = elements + across;
        o->squares = (float *)(void *)(o->along + along);
    }
    return (size_t)(across + along) * sizeof(uint16_t) + (size_t)o->capacity * sizeof(float);
}

// Sets the capacity: the whole sequence, or only `positions` if the sequence is too large.
static void operand_size(struct operand *o, const struct cp_case *c, struct range positions)
{
    bool key_side = o->tensor == INPUT_K || o->tensor == INPUT_V;
    int64_t length = case_length(c, key_side ? SIDE_KV : SIDE_Q, o->sequence);
    o->base = 0;
    o->capacity = amx_depth_padded(length > positions.end ? length : positions.end);
    if (operand_lay_out(o) > OPERAND_BYTES_MAX) {
        o->base = positions.begin / AMX_DEPTH * AMX_DEPTH;
        o->capacity = amx_depth_padded(positions.end - o->base);
    }
    o->bytes = operand_lay_out(o);
    o->loaded = (struct range){o->base, o->base};
}

// Packs `count` positions from `first` on, which is a multiple of AMX_DEPTH, and zeros up to
// AMX_DEPTH positions.
static void rows_load(struct operand *o, const struct cp_case *c, int64_t first, int64_t count)
{
    uint16_t rows[AMX_DEPTH * HEAD_DIM_MAX];
    int64_t at = first - o->base;
    for (int64_t i = 0; i < count; i++) {
        float values[HEAD_DIM_MAX], squares = 0;
        input_token_head(c, o->tensor, o->sequence, first + i, o->head, values);
        for (int64_t j = 0; j < o->d; j++)
            squares += values[j] * values[j];
        o->squares[at + i] = squares;
        dtype_write(DTYPE_BF16, values, o->d, rows + i * o->d);
    }
    memset(rows + count * o->d, 0, (size_t)((AMX_DEPTH - count) * o->d) * sizeof(*rows));
    amx_pack_transposed(AMX_DEPTH, o->d, rows, o->d, o->across + amx_right_elements(o->d, at));
    amx_pack(AMX_DEPTH, o->d, rows, o->d, o->along + amx_right_elements(at, o->d));
}

static void operand_load(struct operand *o, const struct cp_case *c, struct range positions)
{
    struct range *loaded = &o->loaded;
    positions.begin = positions.begin / AMX_DEPTH * AMX_DEPTH;
    if (positions.begin >= loaded->begin && positions.end <= loaded->end)
        return;
    if (positions.begin < loaded->begin || positions.begin > loaded->end)
        *loaded = (struct range){positions.begin, positions.begin};
    for (int64_t first = loaded->end / AMX_DEPTH * AMX_DEPTH; first < positions.end;
         first += AMX_DEPTH) {
        int64_t count = positions.end - first;
        rows_load(o, c, first, count < AMX_DEPTH ? count : AMX_DEPTH);
    }
    loaded->end = positions.end;
}

static struct operand *operand_find(struct operands *all, enum input_tensor tensor, int sequence,
                                    int head)
{
    for (int i = 0; i < all->count; i++) {
        struct operand *o = all->all[i];
        if (o->tensor == tensor && o->sequence == sequence && o->head == head)
            return o;
    }
    return NULL;
}

// Frees the least recently used operands until there is room for one more of `bytes` bytes. The
// byte limit never frees the last used one.
static void operands_shrink(struct operands *all, size_t bytes)
{
    while (all->count == OPERANDS_MAX ||
           (all->count > 1 && all->bytes + bytes > OPERANDS_BYTES_MAX)) {
        int oldest = 0;
        for (int i = 1; i < all->count; i++)
            if (all->all[i]->used < all->all[oldest]->used)
                oldest = i;
        operand_drop(all, oldest);
    }
}

static enum status operand_add(struct operands *all, const struct operand *wanted,
                               struct range positions, struct operand **operand,
                               struct error *error)
{
    struct operand *o = malloc(sizeof(*o));
    if (!o)
        return memory_short(sizeof(*o), error);
    *o = *wanted;
    operand_size(o, &all->c, positions);
    operands_shrink(all, o->bytes);
    o->memory = memory_of(o->bytes);
    if (!o->memory) { // retries after freeing operands that are only kept for later calls
        operands_shrink(all, OPERANDS_BYTES_MAX);
        o->memory = memory_of(o->bytes);
    }
    if (!o->memory) {
        enum status status = memory_short(o->bytes, error);
        free(o);
        return status;
    }
    operand_lay_out(o);
    all->all[all->count++] = o;
    all->bytes += o->bytes;
    *operand = o;
    return STATUS_OK;
}

static bool operand_has_room(const struct operand *o, struct range positions)
{
    return positions.begin >= o->base && positions.end <= o->base + o->capacity;
}

// Returns the room's operands for case `c`, and frees those of any other case.
static struct operands *operands_of(struct room *r, const struct cp_case *c)
{
    if (!r->operands)
        r->operands = calloc(1, sizeof(*r->operands));
    // If only padding bytes differ, the operands are packed again.
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (r->operands && memcmp(&r->operands->c, c, sizeof(*c)) != 0) {
        operands_clear(r->operands);
        memcpy(&r->operands->c, c, sizeof(*c));
    }
    return r->operands;
}

enum status room_operand(struct room *r, const struct cp_case *c, enum input_tensor tensor,
                         int sequence, int head, struct range positions,
                         const struct operand **operand, struct error *error)
{
    struct operands *all = operands_of(r, c);
    if (!all)
        return memory_short(sizeof(*all), error);
    struct operand *o = operand_find(all, tensor, sequence, head);
    if (o && !operand_has_room(o, positions)) {
        o->sequence = -1; // never found again
        o = NULL;
    }
    const struct operand wanted = {
        .tensor = tensor, .sequence = sequence, .head = head, .d = input_head_dim(c, tensor)};
    enum status status = o ? STATUS_OK : operand_add(all, &wanted, positions, &o, error);
    if (status != STATUS_OK)
        return status;
    o->used = ++all->calls;
    operand_load(o, c, positions);
    *operand = o;
    return STATUS_OK;
}

struct amx_right operand_across(const struct operand *o, int64_t position)
{
    return amx_right_transposed(o->across + amx_right_elements(o->d, position - o->base), o->d);
}

struct amx_right operand_along(const struct operand *o, int64_t position)
{
    return amx_right(o->along + amx_right_elements(position - o->base, o->d), o->d);
}

double operand_rms(const struct operand *o, struct range positions)
{
    double squares = 0, count = (double)(positions.end - positions.begin) * (double)o->d;
    for (int64_t i = positions.begin; i < positions.end; i++)
        squares += o->squares[i - o->base];
    return sqrt(squares / (count > 0 ? count : 1));
}
