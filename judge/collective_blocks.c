// SPDX-License-Identifier: Apache-2.0
#include "judge/collective_blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/collective_numbers.h"

// With more ranks there are too many combinations.
#define SOLVED_MAX   8
// A block needs this many wrong elements, of which this fraction must be explained.
#define BAD_LEAST    16
#define HITS_MIN     0.9
// More elements of a block are not examined.
#define ELEMENTS_MAX 64

// The sampled wrong elements of a block.
struct block {
    int count;
    const union view_number *got[ELEMENTS_MAX];
    union view_number sends[ELEMENTS_MAX][SOLVED_MAX];
    int times[SOLVED_MAX]; // how often each rank is in the sum: 0, 1 or 2
    double share;          // of the elements that this explains
};

static bool is_hit(const struct collective_view *v, const struct block *b, int i, const int *times)
{
    double sum = 0, size = 0;
    uint64_t whole = 0;
    int divisor = v->reduction == REDUCTION_AVG ? v->world_size : 1;
    for (int rank = 0; rank < v->world_size; rank++) {
        if (!view_is_real(v)) {
            whole += (uint64_t)times[rank] * (uint64_t)b->sends[i][rank].whole;
            continue;
        }
        sum += times[rank] * b->sends[i][rank].real;
        size += fmax(1, times[rank]) * fabs(b->sends[i][rank].real);
    }
    if (!view_is_real(v))
        return view_truncated(v, whole) / divisor == b->got[i]->whole;
    return fabs(sum / divisor - b->got[i]->real) <= 2 * v->bound * size / divisor;
}

// Tries all combinations of ranks that are missing, there, or there twice.
static void block_solve(const struct collective_view *v, struct block *b)
{
    int combinations = 1, times[SOLVED_MAX];
    for (int rank = 0; rank < v->world_size; rank++)
        combinations *= 3;
    int right = (combinations - 1) / 2; // each rank once
    b->share = 0;
    for (int number = 0; number < combinations; number++) {
        int hits = 0, rest = number, misses_most = (int)((1 - HITS_MIN) * b->count);
        for (int rank = 0; rank < v->world_size; rank++, rest /= 3)
            times[rank] = rest % 3;
        for (int i = 0; i < b->count && i - hits <= misses_most; i++)
            hits += is_hit(v, b, i, times);
        if (number == right || hits <= b->share * b->count)
            continue;
        b->share = (double)hits / b->count;
        memcpy(b->times, times, sizeof(times));
    }
}

static int block_of(const struct collective_view *v, int64_t index)
{
    int64_t count = v->first[v->blocks];
    return (int)((double)index / (double)count * v->world_size);
}

static void block_load(const struct collective_view *v, int count, const int64_t *index,
                       const union view_number *got, const bool *bad, int number, struct block *b)
{
    b->count = 0;
    for (int i = 0; i < count && b->count < ELEMENTS_MAX; i++) {
        if (!bad[i] || block_of(v, index[i]) != number)
            continue;
        b->got[b->count] = &got[i];
        for (int rank = 0; rank < v->world_size; rank++)
            b->sends[b->count][rank] = view_drawn(v, rank, view_origin_of(v, index[i]).index);
        b->count++;
    }
}

// Appends the ranks that are `times` times in the sum: " lacks ranks 0 and 2".
static size_t ranks_tell(const struct collective_view *v, const struct block *b, int times,
                         char *text, size_t size)
{
    size_t used = 0;
    int count = 0;
    for (int rank = 0; rank < v->world_size; rank++)
        count += b->times[rank] == times;
    if (count == 0)
        return 0;
    used += (size_t)snprintf(text, size, " %s rank%s", times == 0 ? "lacks" : "has twice",
                             count == 1 ? "" : "s");
    for (int rank = 0; rank < v->world_size && used < size; rank++)
        if (b->times[rank] == times)
            used += (size_t)snprintf(text + used, size - used, " %d", rank);
    return used;
}

bool collective_blocks_find(const struct collective_view *v, int count, const int64_t *index,
                            const union view_number *got, const bool *bad,
                            struct diagnosis *diagnosis)
{
    bool adds = v->reduction == REDUCTION_SUM || v->reduction == REDUCTION_AVG;
    size_t used = 0, size = sizeof(diagnosis->text);
    char text[sizeof(diagnosis->text)] = "";
    struct block b;
    double least = 1;
    if (v->source[0] >= 0 || !adds || v->world_size < 2 || v->world_size > SOLVED_MAX)
        return false;
    used = (size_t)snprintf(
        text, size, "the %d blocks of the elements are sums of other ranks:", v->world_size);
    for (int number = 0; number < v->world_size; number++) {
        block_load(v, count, index, got, bad, number, &b);
        if (b.count == 0)
            continue;
        block_solve(v, &b);
        if (b.count < BAD_LEAST || b.share < HITS_MIN)
            return false;
        least = fmin(least, b.share);
        if (used >= size - 40)
            continue;
        used += (size_t)snprintf(text + used, size - used, " block %d", number);
        used += ranks_tell(v, &b, 0, text + used, used < size ? size - used : 0);
        used += ranks_tell(v, &b, 2, text + used, used < size ? size - used : 0);
        used += used < size ? (size_t)snprintf(text + used, size - used, ";") : 0;
    }
    text[strlen(text) - 1] = '\0';
    snprintf(diagnosis->text, size, "%s", text);
    diagnosis->explained = least;
    return true;
}
