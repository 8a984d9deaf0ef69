// SPDX-License-Identifier: Apache-2.0
// Which rows of a rank's tensors are judged: all of them, or where that were too much work a sample
// that the case's seed draws. It is made of tiles of up to 64 consecutive tokens with all heads.
// The first and the last tile of every span, which are the edges of chunks and sequences, are
// always in it, unless spans are so many that these alone were too much. Of the others some begin
// on a multiple of 64 tokens from the beginning of their span, and some lie across a multiple of
// 128, where kernels begin a tile of theirs.
//
// Queries of a sample are judged against all keys that they see. Keys of a sample are judged
// against all queries that see them, with the LSE and the delta of the run itself, which the sample
// of queries judges.
#ifndef CPATTN_JUDGE_TILES_H
#define CPATTN_JUDGE_TILES_H

#include "plan/shard.h"

#define TILE_TOKENS 64

// Tokens [first, first + count) of one span of the list that the rank has.
struct tile {
    int32_t span;
    int64_t first;
    int32_t count; // 1..TILE_TOKENS
};

// Multiplications that judging all of a rank's share takes, all ranks taken to have the same: pairs
// of queries and keys that see each other, heads and dims, and the products of each.
double tiles_work(const struct cp_case *c);

// The part of the tiles that are judged, 0..1, where `work` is what a rank may do: 1 where the case
// wants all judged, or has a gradient of a bias, which no sample tells much about, or where it is
// not too much.
double tiles_fraction(const struct cp_case *c, double work);

// The tiles of a side, in the order of the spans and of their tokens, without overlap; with a
// fraction of 1 they cover everything. tiles[] has room for `max`; returns how many there are,
// which may be more. Pure: the same on every rank, machine and backend.
int64_t tiles_list(const struct cp_case *c, enum shard_side side, double fraction,
                   const struct span *spans, int count, struct tile *tiles, int64_t max);

// Tokens of the tiles that lie in one chunk of the rank.
int64_t tiles_tokens(const struct tile *tiles, int64_t tile_count, const struct span *spans,
                     int chunk);

#endif
