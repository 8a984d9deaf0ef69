// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/tables.h"

#include <stdlib.h>
#include <string.h>

#include "judge/mask.h"
#include "judge/source.h"
#include "plan/bias.h"

void tables_sequences(struct reference_cuda *r, struct reference_sequence *sequences)
{
    for (int32_t i = 0; i < r->c->batch; i++)
        for (int side = SIDE_Q; side <= SIDE_KV; side++) {
            int64_t length = case_length(r->c, (enum shard_side)side, i);
            sequences[i].first[side] = r->tokens[side];
            sequences[i].length[side] = length;
            sequences[i].given[side] = r->c->source ? r->c->source->first[side][i] : 0;
            r->tokens[side] += length;
            if (length > r->length_max[side])
                r->length_max[side] = length;
        }
}

// Number of tokens of a sequence that a rank holds, without padding.
static int64_t sequence_rows(const struct cp_case *c, enum shard_side side, int rank,
                             int32_t sequence)
{
    int64_t length = case_length(c, side, sequence), occupied = case_occupied(c, side, sequence);
    int64_t rows = 0;
    int chunks = shard_chunks_per_rank(c);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        shard_chunk(occupied, chunks * c->world_size, shard_chunk_of(c, rank, i), &begin, &end);
        end = end < length ? end : length;
        rows += end > begin ? end - begin : 0;
    }
    return rows;
}

int64_t tables_rows(const struct cp_case *c, enum shard_side side, int rank)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < c->batch; i++)
        rows += sequence_rows(c, side, rank, i);
    return rows;
}

// ---- tiles --------------------------------------------------------------------------------------

// Each span may end with a partial tile.
int64_t tables_tiles_max(const struct cp_case *c, enum shard_side side, int rank)
{
    return tables_rows(c, side, rank) / REFERENCE_TILE_ROWS + shard_spans_max(c);
}

// Context of more_work_first().
struct work_order {
    const struct cp_case *c;
    enum shard_side side;
};

// Estimates the work of a tile: the number of columns that its middle row sees.
static int64_t tile_work(const struct work_order *o, const struct reference_tile *tile)
{
    struct mask mask = mask_of(o->c, tile->sequence);
    int64_t middle = tile->position + tile->count / 2;
    struct range seen = o->side == SIDE_Q ? mask_keys(&mask, middle) : mask_queries(&mask, middle);
    return seen.end - seen.begin;
}

static int more_work_first(const void *a, const void *b, void *order)
{
    const struct reference_tile *x = a, *y = b;
    int64_t work_x = tile_work(order, x), work_y = tile_work(order, y);
    if (work_x != work_y)
        return work_x > work_y ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

// Returns the table entry of a tile of a span. `row`: number of its first token in the results.
static struct reference_tile tile_of(const struct cp_case *c, enum shard_side side, int rank,
                                     const struct span *span, const struct tile *tile, int64_t row)
{
    bool bias = side == SIDE_Q && c->bias != BIAS_NONE;
    int64_t bias_row = bias ? bias_row_of(c, team_of(rank, 1), 0, span) : 0;
    return (struct reference_tile){
        .position = span->position + tile->first,
        .row = row,
        .local_row = span->row + tile->first * shard_row_step(c),
        .bias_row = bias ? bias_row + tile->first * bias_row_step(c) : 0,
        .sequence = span->sequence,
        .count = tile->count,
        .chunk = span->chunk,
    };
}

int64_t tables_tiles(const struct cp_case *c, enum shard_side side, int rank,
                     const struct span *spans, int count, double fraction, struct tile *drawn,
                     struct reference_tile *tiles)
{
    int64_t most = count, tile_count = 0, row = 0;
    for (int i = 0; i < count; i++)
        most += spans[i].len / REFERENCE_TILE_ROWS;
    int64_t drawn_count = tiles_list(c, side, fraction, spans, count, drawn, most);
    for (int chunk = 0; chunk < shard_chunks_per_rank(c); chunk++)
        for (int64_t i = 0; i < drawn_count; i++) {
            const struct span *span = &spans[drawn[i].span];
            if (span->chunk != chunk)
                continue;
            tiles[tile_count++] = tile_of(c, side, rank, span, &drawn[i], row);
            row += drawn[i].count;
        }
    return tile_count;
}

void tables_sort(const struct cp_case *c, enum shard_side side, const struct reference_tile *tiles,
                 int64_t count, struct reference_tile *sorted)
{
    struct work_order order = {c, side};
    memcpy(sorted, tiles, (size_t)count * sizeof(*sorted));
    qsort_r(sorted, (size_t)count, sizeof(*sorted), more_work_first, &order);
}

// ---- pieces -------------------------------------------------------------------------------------

int64_t tables_pieces_max(const struct cp_case *c)
{
    return (int64_t)c->world_size * shard_spans_max(c);
}

int64_t tables_pieces(const struct cp_case *c, const struct reference_sequence *sequences,
                      const void *const statistics[WORLD_SIZE_MAX], struct span *spans,
                      struct reference_piece *pieces)
{
    int64_t piece_count = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        int count = shard_spans(c, SIDE_Q, rank, spans);
        int64_t rows = tables_rows(c, SIDE_Q, rank), row = 0;
        for (int chunk = 0; chunk < shard_chunks_per_rank(c); chunk++)
            for (int i = 0; i < count; i++) {
                const struct span *span = &spans[i];
                if (span->chunk != chunk)
                    continue;
                pieces[piece_count++] = (struct reference_piece){
                    .from = statistics[rank],
                    .rows = rows,
                    .row = row,
                    .count = span->len,
                    .token = sequences[span->sequence].first[SIDE_Q] + span->position,
                };
                row += span->len;
            }
    }
    return piece_count;
}
