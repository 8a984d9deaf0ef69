// SPDX-License-Identifier: Apache-2.0
#include "plan/shard.h"

void shard_chunk(int64_t len, int chunks, int chunk, int64_t *begin, int64_t *end)
{
    *begin = chunk * len / chunks;
    *end = (chunk + 1) * len / chunks;
}

int shard_chunks_per_rank(const struct cp_case *c)
{
    return c->sharding == SHARDING_ZIGZAG ? 2 : 1;
}

int shard_chunk_of(const struct cp_case *c, int rank, int i)
{
    return i == 0 ? rank : 2 * c->world_size - 1 - rank;
}

// Positions [*begin, *end) of the rank's i-th chunk in a sequence that occupies `len` tokens.
static void rank_chunk(const struct cp_case *c, int64_t len, int rank, int i, int64_t *begin,
                       int64_t *end)
{
    int chunks = c->world_size * shard_chunks_per_rank(c);
    shard_chunk(len, chunks, shard_chunk_of(c, rank, i), begin, end);
}

static int64_t chunk_tokens(const struct cp_case *c, int64_t len, int rank)
{
    int64_t tokens = 0;
    for (int i = 0; i < shard_chunks_per_rank(c); i++) {
        int64_t begin, end;
        rank_chunk(c, len, rank, i, &begin, &end);
        tokens += end - begin;
    }
    return tokens;
}

int64_t shard_tokens(const struct cp_case *c, enum shard_side side, int rank, int32_t sequence)
{
    return chunk_tokens(c, case_occupied(c, side, sequence), rank);
}

int64_t shard_chunk_tokens(const struct cp_case *c, enum shard_side side, int rank,
                           int32_t sequence, int i)
{
    int64_t begin, end;
    rank_chunk(c, case_occupied(c, side, sequence), rank, i, &begin, &end);
    return end - begin;
}

bool shard_is_alike(const struct cp_case *c)
{
    int32_t listed = 0;
    for (int i = 0; i < CASE_LISTS; i++)
        listed += c->list_count[i];
    return c->format != FORMAT_THD || listed == 0;
}

int64_t shard_rows(const struct cp_case *c, enum shard_side side, int rank)
{
    if (shard_is_alike(c))
        return c->batch * shard_tokens(c, side, rank, 0);
    int64_t rows = 0;
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        rows += shard_tokens(c, side, rank, sequence);
    return rows;
}

int64_t shard_rows_max(const struct cp_case *c, enum shard_side side)
{
    int64_t rows_max = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t rows = shard_rows(c, side, rank);
        if (rows > rows_max)
            rows_max = rows;
    }
    return rows_max;
}

int64_t shard_row_step(const struct cp_case *c)
{
    return c->format == FORMAT_SBHD ? c->batch : 1;
}

int shard_spans_max(const struct cp_case *c)
{
    return c->batch * shard_chunks_per_rank(c);
}

static int64_t clamp64(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

// Makes the spans of the positions [first, last) of one sequence, whose first local token is in row
// `base`. Returns their number.
static int sequence_spans(const struct cp_case *c, enum shard_side side, int rank, int32_t sequence,
                          int64_t base, int64_t first, int64_t last, struct span *spans)
{
    int64_t occupied = case_occupied(c, side, sequence), token = 0, step = shard_row_step(c);
    int count = 0;
    for (int i = 0; i < shard_chunks_per_rank(c); i++) {
        int64_t begin, end;
        rank_chunk(c, occupied, rank, i, &begin, &end);
        int64_t from = clamp64(first, begin, end), to = clamp64(last, begin, end);
        if (from < to)
            spans[count++] = (struct span){.sequence = sequence,
                                           .chunk = i,
                                           .row = base + (token + from - begin) * step,
                                           .len = to - from,
                                           .position = from};
        token += end - begin;
    }
    return count;
}

static int64_t sequence_rows(const struct cp_case *c, enum shard_side side, int rank,
                             int32_t sequence)
{
    return c->format == FORMAT_SBHD ? 1 : shard_tokens(c, side, rank, sequence);
}

// Makes the spans of all sequences: of their tokens, or of the padding behind them.
static int rank_spans(const struct cp_case *c, enum shard_side side, int rank, bool padding,
                      struct span *spans)
{
    int64_t base = 0;
    int count = 0;
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        int64_t length = case_length(c, side, sequence);
        int64_t first = padding ? length : 0;
        int64_t last = padding ? case_occupied(c, side, sequence) : length;
        count += sequence_spans(c, side, rank, sequence, base, first, last, spans + count);
        base += sequence_rows(c, side, rank, sequence);
    }
    return count;
}

int shard_spans(const struct cp_case *c, enum shard_side side, int rank, struct span *spans)
{
    return rank_spans(c, side, rank, false, spans);
}

int shard_padding(const struct cp_case *c, enum shard_side side, int rank, struct span *spans)
{
    return rank_spans(c, side, rank, true, spans);
}
