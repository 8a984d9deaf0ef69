// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/layout.h"

#include <string.h>

#include "tests/support/definition.h"

// The chunk k of `chunks` with k*n/chunks <= position < (k+1)*n/chunks.
static int chunk_at(int64_t n, int chunks, int64_t position)
{
    int k = 0;
    while (position >= (k + 1) * n / chunks)
        k++;
    return k;
}

// Rank and chunk of a position. Zigzag assigns chunks from both ends.
static void deal(const struct cp_case *c, int64_t n, int64_t position, struct place *place)
{
    bool zigzag = c->sharding == SHARDING_ZIGZAG;
    int chunks = zigzag ? 2 * c->world_size : c->world_size;
    int k = chunk_at(n, chunks, position);
    place->chunk = k >= c->world_size;
    place->rank = place->chunk ? chunks - 1 - k : k;
}

// The row of a token. `before`: number of local tokens of its sequence before it.
static int64_t row_of(const struct cp_case *c, const struct layout *layout, int rank, int sequence,
                      int64_t before)
{
    if (c->format == FORMAT_SBHD)
        return before * c->batch + sequence;
    int64_t row = before;
    for (int s = 0; s < sequence; s++)
        row += layout->tokens[rank][s];
    return row;
}

void layout_make(const struct cp_case *c, enum shard_side side, struct layout *layout)
{
    memset(layout, 0, sizeof *layout);
    for (int s = 0; s < c->batch; s++) {
        layout->length[s] = definition_length(c, side, s);
        layout->occupied[s] = definition_occupied(c, side, s);
        for (int64_t i = 0; i < layout->occupied[s]; i++) {
            struct place *place = &layout->places[s][i];
            deal(c, layout->occupied[s], i, place);
            int64_t before = layout->tokens[place->rank][s]++;
            place->row = row_of(c, layout, place->rank, s, before);
            layout->rows[place->rank]++;
        }
    }
}
