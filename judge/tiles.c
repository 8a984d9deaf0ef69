// SPDX-License-Identifier: Apache-2.0
#include "judge/tiles.h"

#include <math.h>

#include "judge/mask.h"
#include "judge/philox.h"

// The middle of a span is divided into slots of the length of two tiles. Each slot has at most one
// tile of the sample. Slots begin halfway between multiples of their length.
#define SLOT_TOKENS (2 * TILE_TOKENS)

// With more than SPANS_MANY spans, the edges of only some spans are judged. Their share is
// EDGES_PART times that of other tiles.
#define SPANS_MANY 256
#define EDGES_PART 16

// Third word of the counters (judge/philox.h) of these draws; tensors use other values.
#define PHILOX_TILES 0x7469u

double tiles_work(const struct cp_case *c)
{
    double pairs = 0, products = c->head_dim_qk + c->head_dim_v;
    bool even = case_is_even(c, SIDE_Q) && case_is_even(c, SIDE_KV);
    for (int32_t i = 0; i < (even ? 1 : c->batch); i++) {
        struct mask m = mask_of(c, i);
        pairs += mask_pairs(&m) * (even ? c->batch : 1);
    }
    return pairs * c->heads * products * (c->training ? 4 : 1) / c->world_size;
}

double tiles_fraction(const struct cp_case *c, double work)
{
    bool bias = c->training && c->bias != BIAS_NONE;
    double all = c->verify == VERIFY_AUTO && !bias ? tiles_work(c) : 0;
    return all <= work ? 1 : work / all;
}

// Returns true with this probability. *number: a random number, 0..2^16 - 1.
static bool drawn(const struct cp_case *c, enum shard_side side, const struct span *span,
                  int64_t token, double probability, uint32_t *number)
{
    uint64_t place = (uint64_t)(span->position + token);
    struct philox_block block = {{(uint32_t)place, (uint32_t)(place >> 32),
                                  PHILOX_TILES + (uint32_t)side, (uint32_t)span->sequence}};
    block = philox_block(block, c->seed);
    *number = block.word[1] & 0xffff;
    return block.word[0] < probability * 0x1p32;
}

struct list {
    struct tile *tiles;
    int64_t max, count;
};

static void list_add(struct list *l, int32_t span, int64_t first, int64_t count)
{
    if (l->count < l->max)
        l->tiles[l->count] = (struct tile){span, first, (int32_t)count};
    l->count++;
}

// Adds tiles that cover tokens [first, end) without a gap.
static void list_all(struct list *l, int32_t span, int64_t first, int64_t end)
{
    for (; first < end; first += TILE_TOKENS)
        list_add(l, span, first, end - first < TILE_TOKENS ? end - first : TILE_TOKENS);
}

// Adds the sampled tiles after the first tile of the span, up to token `end`.
static void list_middle(const struct cp_case *c, enum shard_side side, double fraction,
                        const struct span *s, int32_t span, int64_t end, struct list *l)
{
    double probability = fraction * SLOT_TOKENS / TILE_TOKENS;
    for (int64_t slot = TILE_TOKENS; slot < end; slot += SLOT_TOKENS) {
        uint32_t number;
        if (!drawn(c, side, s, slot, probability, &number))
            continue;
        int64_t first = slot + number % 3 * (TILE_TOKENS / 2);
        if (first < end)
            list_add(l, span, first, end - first < TILE_TOKENS ? end - first : TILE_TOKENS);
    }
}

static void list_span(const struct cp_case *c, enum shard_side side, double fraction, bool edges,
                      const struct span *s, int32_t span, struct list *l)
{
    int64_t last = s->len - TILE_TOKENS;
    if (!edges)
        return list_middle(c, side, fraction, s, span, s->len, l);
    if (last <= TILE_TOKENS)
        return list_all(l, span, 0, s->len);
    list_add(l, span, 0, TILE_TOKENS);
    list_middle(c, side, fraction, s, span, last, l);
    list_add(l, span, last, TILE_TOKENS);
}

int64_t tiles_list(const struct cp_case *c, enum shard_side side, double fraction,
                   const struct span *spans, int count, struct tile *tiles, int64_t max)
{
    struct list l = {tiles, max, 0};
    uint32_t unused;
    for (int32_t i = 0; i < count; i++) {
        bool edges =
            count <= SPANS_MANY || drawn(c, side, &spans[i], -1, EDGES_PART * fraction, &unused);
        if (fraction >= 1)
            list_all(&l, i, 0, spans[i].len);
        else
            list_span(c, side, fraction, edges, &spans[i], i, &l);
    }
    return l.count;
}

int64_t tiles_tokens(const struct tile *tiles, int64_t tile_count, const struct span *spans,
                     int chunk)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < tile_count; i++)
        if (spans[tiles[i].span].chunk == chunk)
            tokens += tiles[i].count;
    return tokens;
}
