// SPDX-License-Identifier: Apache-2.0
#include "plan/sight.h"

#include "plan/shard.h"
#include "plan/slice.h"

_Static_assert(WORLD_SIZE_MAX <= 64, "a set of ranks is a word");

// The set of ranks first to last.
static uint64_t ranks_between(int first, int last)
{
    return first > last ? 0 : (~UINT64_C(0) >> (63 - (last - first))) << first;
}

// The ranks that hold the chunks first to last of a sequence.
static uint64_t owners(const struct cp_case *c, int first, int last)
{
    int size = c->world_size, mirror = 2 * size - 1;
    if (c->sharding != SHARDING_ZIGZAG)
        return ranks_between(first, last);
    uint64_t rising = ranks_between(first, last < size ? last : size - 1);
    return rising | ranks_between(mirror - last, mirror - (first < size ? size : first));
}

// Which of `chunks` chunks holds a position, in a sequence that occupies `len` tokens.
static int chunk_at(int64_t len, int chunks, int64_t position)
{
    return (int)(((position + 1) * chunks + len - 1) / len - 1);
}

// The ranks that hold the positions [begin, end). With fewer tokens than chunks some chunks are
// empty, and their ranks hold nothing.
static uint64_t holders(const struct cp_case *c, int64_t len, int64_t begin, int64_t end)
{
    int chunks = c->world_size * shard_chunks_per_rank(c);
    uint64_t ranks = 0;
    if (begin >= end)
        return 0;
    if (len >= chunks)
        return owners(c, chunk_at(len, chunks, begin), chunk_at(len, chunks, end - 1));
    for (int64_t i = begin; i < end; i++)
        ranks |= owners(c, chunk_at(len, chunks, i), chunk_at(len, chunks, i));
    return ranks;
}

// The ranks that hold the keys seen by queries [begin, end), begin < end. These keys have no gap,
// because adjacent queries see adjacent keys.
static uint64_t seen_by(const struct cp_case *c, int32_t sequence, int64_t begin, int64_t end)
{
    struct case_band band = case_band(c, sequence);
    int64_t first = 0, behind = case_length(c, SIDE_KV, sequence);
    if (band.left < SLICE_UNBOUNDED && begin - band.shift - band.left > first)
        first = begin - band.shift - band.left;
    if (band.right < SLICE_UNBOUNDED && end - band.shift + band.right < behind)
        behind = end - band.shift + band.right;
    return holders(c, case_occupied(c, SIDE_KV, sequence), first, behind);
}

static void add_sequence(const struct cp_case *c, int32_t sequence, uint64_t *ranks)
{
    int per_rank = shard_chunks_per_rank(c), chunks = c->world_size * per_rank;
    int64_t occupied = case_occupied(c, SIDE_Q, sequence), len = case_length(c, SIDE_Q, sequence);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        int rank = i / per_rank;
        shard_chunk(occupied, chunks, shard_chunk_of(c, rank, i % per_rank), &begin, &end);
        end = end < len ? end : len;
        if (begin < end)
            ranks[rank] |= seen_by(c, sequence, begin, end);
    }
}

static bool sequences_are_alike(const struct cp_case *c)
{
    int32_t listed = 0;
    for (int i = 0; i < CASE_LISTS; i++)
        listed += c->list_count[i];
    return listed == 0;
}

void sight_init(struct sight *sight, const struct cp_case *c, int size)
{
    uint64_t ranks[WORLD_SIZE_MAX] = {0};
    int32_t sequences = sequences_are_alike(c) ? 1 : c->batch;
    for (int32_t sequence = 0; sequence < sequences; sequence++)
        add_sequence(c, sequence, ranks);
    *sight = (struct sight){{0}};
    for (int rank = 0; rank < c->world_size; rank++)
        for (int source = 0; source < c->world_size; source++)
            sight->teams[rank / size] |= (ranks[rank] >> source & 1) << source / size;
}
