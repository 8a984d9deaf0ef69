// SPDX-License-Identifier: Apache-2.0
// The work of a backward call, cut for thread blocks: every key row in at most one tile, every tile
// with all queries that see any of it. A tail has the same once more, in pieces of tiles. Host
// code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_BACKWARD_H
#define CPATTN_KERNELS_CUDA_WORKLIST_BACKWARD_H

#include "common/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/intervals.h"

#ifdef __cplusplus
extern "C" {
#endif

// An interval of queries, all of one slice, that see keys of a tile. Its blocks of q_rows queries
// are the same for all tiles; block b holds queries b * q_rows on, the last may hold fewer. Query i
// of the interval sees key j of the tile iff low <= j - i <= high; it lies in row q_row + i *
// row_step.
struct backward_fragment {
    int64_t q_row;    // residue + begin * row_step
    int64_t bias;     // elements from a head's bias to that of query 0 and key 0
    int64_t turn;     // number of this fragment's first step among those of all tiles, see below
    int64_t position; // of query 0 behind key 0 of the tile, where that is what is masked by
    int32_t residue, begin; // of q_row
    int32_t q_len;
    int32_t low, high;              // within +-BACKWARD_BOUND, which stands for no bound
    int32_t block_begin, block_end; // blocks that see any key of the tile
    int32_t block_first;            // number of block 0 among those of all intervals
    int32_t interval, tiles;        // number of the interval; how many tiles see any of it
};
#define BACKWARD_BOUND (1 << 29)

// Key j of the tile lies in row kv_row + j * row_step. Intervals that many tiles see are in front,
// as are the later blocks of each: of a causal sequence, whichever way its rows were dealt, that is
// from its end to its beginning. Thus, where those that add to dQ take turns, all tiles come to the
// blocks in one order, and those that see fewer of them need not wait for the others to come as
// far.
struct backward_tile {
    int64_t kv_row;         // residue + begin * row_step
    int64_t steps;          // blocks in all fragments
    int32_t residue, begin; // of kv_row
    int32_t rows;           // 1..kv_rows
    int32_t fragment, fragment_count;
    int32_t chain; // tiles of one chain follow each other
    int32_t keys;  // number of the whole tile with these keys
    // Which piece of the tail it is, in the order in which they are worked on; and in how many
    // pieces the tail has these keys.
    int32_t piece, pieces;
};

// A step is one block against one tile. The turn of a step is how many steps of its block come
// before it in the order of the tiles: the device counts that, in an array of `steps` numbers.
struct backward_worklist {
    struct backward_tile *tiles; // [tile_count + tail_count]
    struct backward_fragment *fragments;
    int32_t *chains; // [chain_count + 1]: chain c has tiles chains[c]..chains[c + 1] - 1
    struct intervals q, kv;
    int32_t *blocks; // [q.count]: number of the first block of each interval of queries
    int64_t steps;
    int32_t tile_count, fragment_count, block_count, chain_count;
    // The last tail_heads heads have the tail instead of the tiles, see worklist_tail.h.
    int32_t tail_count, tail_heads;
    int32_t tile_capacity, fragment_capacity, chain_capacity, block_capacity;
};

struct backward_cut {
    int32_t q_rows, kv_rows; // of a block, of a tile
    bool chained;            // tiles with a part in one element of dbias shall be in one chain;
                             // else each is a chain of its own
};

// Cuts the slices. The chains with the most steps come first, equals by their rows. The memory is
// the list's: backward_worklist_fini() frees it, after a failure too. RESOURCE_EXHAUSTED when it is
// short or numbers exceed their types; what is in the list is undefined then.
enum status backward_worklist_build(struct backward_worklist *list,
                                    const struct attention_shape *shape, const struct slice *slices,
                                    int32_t slice_count, struct backward_cut cut,
                                    struct error *error) MUST_CHECK;
void backward_worklist_fini(struct backward_worklist *list);

#ifdef __cplusplus
}
#endif

#endif
