// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/drawn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The cached rows of one head of a tensor in one sequence.
struct drawn_head {
    enum input_tensor tensor;
    int sequence, head, d;
    int64_t capacity; // positions
    float *rows;      // [capacity][d]
    double *squares;  // [capacity]: sums over d; negative: the row is not drawn yet
    size_t bytes;
    uint64_t call; // number of the last call that used it
};

#define HEADS_KEPT_MAX 1024

struct drawn {
    struct cp_case c; // the case of all heads
    struct drawn_head heads[HEADS_KEPT_MAX];
    int count;
    size_t bytes;
    uint64_t call; // number of the current call
};

struct drawn *drawn_create(void)
{
    return calloc(1, sizeof(struct drawn));
}

static void head_drop(struct drawn *all, int i)
{
    all->bytes -= all->heads[i].bytes;
    free(all->heads[i].squares);
    all->heads[i] = all->heads[--all->count];
}

static void heads_clear(struct drawn *all)
{
    while (all->count > 0)
        head_drop(all, all->count - 1);
}

void drawn_destroy(struct drawn *all)
{
    if (all)
        heads_clear(all);
    free(all);
}

size_t drawn_bytes(const struct drawn *all)
{
    return all->bytes;
}

void drawn_begin(struct drawn *all, const struct cp_case *c)
{
    if (!all)
        return;
    all->call++;
    // Cases that differ only in padding bytes of the struct count as different.
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (memcmp(&all->c, c, sizeof(*c)) == 0)
        return;
    heads_clear(all);
    memcpy(&all->c, c, sizeof(*c));
}

// Frees the least recently used heads, but none of the current call, until there is room for a head
// of `bytes` bytes. False: there is none.
static bool heads_shrink(struct drawn *all, size_t bytes)
{
    while (all->count == HEADS_KEPT_MAX || all->bytes + bytes > DRAWN_BYTES_MAX) {
        int oldest = 0;
        for (int i = 1; i < all->count; i++)
            if (all->heads[i].call < all->heads[oldest].call)
                oldest = i;
        if (all->count == 0 || all->heads[oldest].call == all->call)
            return false;
        head_drop(all, oldest);
    }
    return true;
}

// Adds a head without drawn rows. NULL: it cannot be cached.
static struct drawn_head *head_add(struct drawn *all, const struct drawn_head *wanted)
{
    struct drawn_head h = *wanted;
    size_t rows = (size_t)h.capacity * (size_t)h.d * sizeof(*h.rows);
    h.bytes = rows + (size_t)h.capacity * sizeof(*h.squares);
    if (h.bytes > DRAWN_ROW_BYTES_MAX || !heads_shrink(all, h.bytes))
        return NULL;
    h.squares = malloc(h.bytes);
    if (!h.squares)
        return NULL;
    h.rows = (float *)(void *)(h.squares + h.capacity);
    for (int64_t i = 0; i < h.capacity; i++)
        h.squares[i] = -1;
    all->heads[all->count] = h;
    all->bytes += h.bytes;
    return &all->heads[all->count++];
}

static struct drawn_head *head_of(struct drawn *all, const struct cp_case *c,
                                  enum input_tensor tensor, int sequence, int head,
                                  struct range positions)
{
    bool key_side = tensor == INPUT_K || tensor == INPUT_V;
    int64_t length = case_length(c, key_side ? SIDE_KV : SIDE_Q, sequence);
    const struct drawn_head wanted = {.tensor = tensor,
                                      .sequence = sequence,
                                      .head = head,
                                      .d = input_head_dim(c, tensor),
                                      .capacity = length > positions.end ? length : positions.end};
    for (int i = 0; i < all->count; i++) {
        struct drawn_head *h = &all->heads[i];
        if (h->tensor == tensor && h->sequence == sequence && h->head == head)
            return h->capacity >= positions.end ? h : NULL;
    }
    return head_add(all, &wanted);
}

static double row_draw(const struct cp_case *c, enum input_tensor tensor, int sequence,
                       int64_t position, int head, int d, float *row)
{
    double squares = 0;
    input_token_head(c, tensor, sequence, position, head, row);
    for (int i = 0; i < d; i++)
        squares += row[i] * row[i];
    return squares;
}

const float *drawn_rows(struct drawn *all, const struct cp_case *c, enum input_tensor tensor,
                        int sequence, int head, struct range positions, float *scratch, float *rms)
{
    struct drawn_head *h = all ? head_of(all, c, tensor, sequence, head, positions) : NULL;
    int d = input_head_dim(c, tensor);
    float *rows = h ? h->rows + positions.begin * d : scratch;
    double squares = 0, count = (double)(positions.end - positions.begin) * d;
    if (h)
        h->call = all->call;
    for (int64_t i = 0; i < positions.end - positions.begin; i++) {
        int64_t position = positions.begin + i;
        double row = h ? h->squares[position] : -1;
        if (row < 0)
            row = row_draw(c, tensor, sequence, position, head, d, rows + i * d);
        if (h)
            h->squares[position] = row;
        squares += row;
    }
    *rms = (float)sqrt(squares / (count > 0 ? count : 1));
    return rows;
}
