// SPDX-License-Identifier: Apache-2.0
// Work list of a backward call: tiles of key rows. A key row is in at most one tile; a tile has all
// queries that see any of its keys. A tail has the same tiles again, cut into pieces. Host code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_BACKWARD_H
#define CPATTN_KERNELS_CUDA_WORKLIST_BACKWARD_H

#include "common/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/intervals.h"

#ifdef __cplusplus
extern "C" {
#endif

// An interval of queries of one slice that see keys of a tile. Its blocks of q_rows queries are the
// same for all tiles: block b holds queries from b * q_rows on; the last may hold fewer.
// Query i of the interval lies in row q_row + i * row_step. It sees key j of the tile iff
// low <= j - i <= high.
struct backward_fragment {
    int64_t q_row;    // residue + begin * row_step
    int64_t bias;     // offset of query 0 and key 0 in a head's bias, in elements
    int64_t turn;     // index of this fragment's first step among those of all tiles, see below
    int64_t position; // of query 0 in the mask, minus that of key 0 of the tile
    int32_t residue, begin; // of q_row
    int32_t q_len;
    int32_t low, high;              // within +-BACKWARD_BOUND, which means no bound
    int32_t block_begin, block_end; // blocks that see any key of the tile
    int32_t block_first;            // index of block 0 among those of all intervals
    int32_t interval, tiles;        // index of the interval; number of tiles that see it
};
#define BACKWARD_BOUND (1 << 29)

// Key j of the tile lies in row kv_row + j * row_step. Fragments whose intervals many tiles see
// come first, and later blocks of a fragment come first. In a causal sequence, whichever way its
// rows are distributed, this order runs from the end to the beginning. So if tiles take turns at
// dQ, all of them visit the blocks in one order, and a tile that sees fewer blocks need not wait
// until others have come as far.
struct backward_tile {
    int64_t kv_row;         // residue + begin * row_step
    int64_t steps;          // blocks in all fragments
    int32_t residue, begin; // of kv_row
    int32_t rows;           // 1..kv_rows
    int32_t fragment, fragment_count;
    int32_t chain; // tiles of one chain are adjacent
    int32_t keys;  // index of the whole tile with these keys
    // Index of this piece of the tail, in processing order; number of pieces with these keys in the
    // tail.
    int32_t piece, pieces;
};

// A step is one block of queries against one tile. The turn of a step is the number of steps with
// the same block that come before it in the processing order of the tiles. The device counts turns,
// in an array of `steps` numbers.
struct backward_worklist {
    struct backward_tile *tiles; // [tile_count + tail_count]
    struct backward_fragment *fragments;
    int32_t *chains; // [chain_count + 1]: chain c has tiles chains[c]..chains[c + 1] - 1
    struct intervals q, kv;
    int32_t *blocks; // [q.count]: index of the first block of each interval of queries
    int64_t steps;
    int32_t tile_count, fragment_count, block_count, chain_count;
    // The last tail_heads heads use the tail instead of the whole tiles, see worklist_tail.h.
    int32_t tail_count, tail_heads;
    int32_t tile_capacity, fragment_capacity, chain_capacity, block_capacity;
};

struct backward_cut {
    int32_t q_rows, kv_rows; // queries of a block, keys of a tile
    // True: tiles that add to a common element of dbias form one chain. False: each tile is a
    // chain.
    bool chained;
};

// Cuts the slices. Chains with the most steps come first, equal ones in row order. The list owns
// its memory: backward_worklist_fini() frees it, after a failure too. RESOURCE_EXHAUSTED: memory is
// short, or a number exceeds its type; the contents of the list are then undefined.
enum status backward_worklist_build(struct backward_worklist *list,
                                    const struct attention_shape *shape, const struct slice *slices,
                                    int32_t slice_count, struct backward_cut cut,
                                    struct error *error) MUST_CHECK;
void backward_worklist_fini(struct backward_worklist *list);

#ifdef __cplusplus
}
#endif

#endif
