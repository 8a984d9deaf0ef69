// SPDX-License-Identifier: Apache-2.0
// The rows of a rank's tensors that are judged: all of them, or a sample if that would be too much
// work. A sample consists of tiles of up to 64 consecutive tokens with all heads, drawn from the
// case's seed. It always has the first and the last tile of every span (the edges of chunks and
// sequences), unless there are too many spans. Some of the other tiles begin at a multiple of 64
// tokens of their span, and some cross a multiple of 128, where kernels begin their own tiles.
//
// Queries of a sample are judged against all keys that they see. Keys of a sample are judged
// against all queries that see them, with the LSE and the delta of the run itself, which the sample
// of queries judges.
#ifndef CPATTN_JUDGE_TILES_H
#define CPATTN_JUDGE_TILES_H

#include "plan/shard.h"

#define TILE_TOKENS 64

// Tokens [first, first + count) of one of the rank's spans.
struct tile {
    int32_t span;
    int64_t first;
    int32_t count; // 1..TILE_TOKENS
};

// Number of multiplications for judging a rank's whole share, if all ranks have equal shares:
// visible pairs, times heads and dims, times products of each.
double tiles_work(const struct cp_case *c);

// The share of tiles that are judged, 0..1, if a rank may do `work` multiplications. 1 if the case
// wants everything judged, or has a gradient of a bias, for which a sample shows little, or if it
// is not too much work.
double tiles_fraction(const struct cp_case *c, double work);

// Fills in the tiles of a side, in the order of spans and tokens, without overlap; a fraction of 1
// covers everything. tiles[] has room for `max`. Returns the number of tiles, which may exceed
// `max`. Pure: the same on every rank, machine and backend.
int64_t tiles_list(const struct cp_case *c, enum shard_side side, double fraction,
                   const struct span *spans, int count, struct tile *tiles, int64_t max);

// Number of tokens of the tiles in one chunk of the rank.
int64_t tiles_tokens(const struct tile *tiles, int64_t tile_count, const struct span *spans,
                     int chunk);

#endif
