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

static int64_t side_len(const struct cp_case *c, enum shard_side side)
{
    return side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
}

// Positions [*begin, *end) of the rank's i-th chunk.
static void rank_chunk(const struct cp_case *c, enum shard_side side, int rank, int i,
                       int64_t *begin, int64_t *end)
{
    int chunks = c->world_size * shard_chunks_per_rank(c);
    shard_chunk(side_len(c, side), chunks, shard_chunk_of(c, rank, i), begin, end);
}

int64_t shard_tokens(const struct cp_case *c, enum shard_side side, int rank)
{
    int64_t tokens = 0;
    for (int i = 0; i < shard_chunks_per_rank(c); i++) {
        int64_t begin, end;
        rank_chunk(c, side, rank, i, &begin, &end);
        tokens += end - begin;
    }
    return tokens;
}

int64_t shard_rows(const struct cp_case *c, enum shard_side side, int rank)
{
    return c->batch * shard_tokens(c, side, rank);
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

// Row of the t-th local token of a sequence.
static int64_t local_row(const struct cp_case *c, int64_t tokens, int32_t sequence, int64_t t)
{
    return c->format == FORMAT_SBHD ? t * c->batch + sequence : sequence * tokens + t;
}

int shard_spans(const struct cp_case *c, enum shard_side side, int rank, struct span *spans)
{
    int64_t tokens = shard_tokens(c, side, rank);
    int count = 0;
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        int64_t t = 0;
        for (int i = 0; i < shard_chunks_per_rank(c); i++) {
            int64_t begin, end;
            rank_chunk(c, side, rank, i, &begin, &end);
            if (begin < end)
                spans[count++] = (struct span){.sequence = sequence,
                                               .chunk = i,
                                               .row = local_row(c, tokens, sequence, t),
                                               .len = end - begin,
                                               .position = begin};
            t += end - begin;
        }
    }
    return count;
}
