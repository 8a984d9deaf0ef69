// SPDX-License-Identifier: Apache-2.0
// What the reference on the device has to know of a case in tables: sequences, the rank's rows in
// tiles, and where the statistics of all ranks' queries lie.
//
// The rows of a side are numbered chunk by chunk, span by span, token by token; padding has no
// number.
#ifndef CPATTN_RANK_CUDA_TABLES_H
#define CPATTN_RANK_CUDA_TABLES_H

#include "kernels/cuda/reference_cuda.h"
#include "plan/shard.h"

// Fills one entry for each sequence, and of `r` the tokens and the longest sequence.
void tables_sequences(struct reference_cuda *r, struct reference_sequence *sequences);

// Most tiles of a side of a rank.
int64_t tables_tiles_max(const struct cp_case *c, enum shard_side side, int rank);

// Cuts the rank's spans of a side into tiles, those with most work first. Returns how many.
int64_t tables_tiles(const struct cp_case *c, enum shard_side side, int rank,
                     const struct span *spans, int count, struct reference_tile *tiles);

// Most pieces of all ranks.
int64_t tables_pieces_max(const struct cp_case *c);

// The pieces of all ranks' queries. `statistics` are of each rank [2][heads][rows]; `spans` is room
// for shard_spans_max(). Returns how many.
int64_t tables_pieces(const struct cp_case *c, const struct reference_sequence *sequences,
                      double *const statistics[WORLD_SIZE_MAX], struct span *spans,
                      struct reference_piece *pieces);

// Tokens of a side that a rank holds, without padding.
int64_t tables_rows(const struct cp_case *c, enum shard_side side, int rank);

#endif
