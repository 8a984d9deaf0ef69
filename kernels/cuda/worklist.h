// SPDX-License-Identifier: Apache-2.0
// The work of a forward call, cut for thread blocks: every query row in at most one tile, every
// tile with all that its rows see. Host code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_H
#define CPATTN_KERNELS_CUDA_WORKLIST_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/attention.h"
#include "kernels/cuda/intervals.h"

// Keys of one slice that some row of a tile sees, and at the begin as many as work_cut says. Row r
// of the tile sees key j of the fragment iff low + r <= j < high + r. Key j lies in row kv_row + j
// * row_step of K and V.
struct work_fragment {
    int64_t kv_row;
    int64_t bias;      // elements from a head's bias to that of the tile's row 0 and key 0
    int32_t keys;      // at least 1
    int32_t stored;    // at least `keys`; rows behind those of the keys [0, stored) hold anything
    int32_t low, high; // within +-WORK_BOUND, which stands for no bound
    bool last;         // of its tile
};
#define WORK_BOUND (1 << 30)

// Row r of the tile lies in row q_row + r * row_step of Q, O and LSE.
struct work_tile {
    int64_t q_row;
    int32_t rows; // 1..cut.rows
    int32_t fragment, fragment_count;
    int32_t blocks; // of keys in all fragments: what the tile costs
};

// Rows of a group of warps, and such groups of a tile at most.
#define WORK_GROUP_ROWS  64
#define WORK_GROUPS_MOST 3

struct worklist {
    struct work_tile *tiles; // the most expensive first, until worklist_order()
    struct work_fragment *fragments;
    int32_t tile_count, fragment_count;
    int32_t tile_capacity, fragment_capacity;
};

// Queries of a tile and keys of a block, at most. Each fragment begins a new block. With a `unit`
// above 0 that is at a column of the bias that is a multiple of it, so that blocks can be copied as
// a whole: up to unit - 1 keys that no row of the tile sees come first, if the slice has them.
//
// The last `last` queries are in tiles of `part` queries, so that the thread blocks that come last
// are shorter; 0: none are.
struct work_cut {
    int32_t rows, keys, unit, part;
    int64_t last;
};

// Cuts the slices. Rows that see nothing need not be in any tile. The memory is the list's:
// worklist_fini() frees it, after a failure too. RESOURCE_EXHAUSTED when it is short or numbers
// exceed their types; what is in the list is undefined then.
enum status worklist_build(struct worklist *list, const struct attention_shape *shape,
                           const struct slice *slices, int32_t slice_count, struct work_cut cut,
                           struct error *error) MUST_CHECK;

// Puts tiles that see the same keys near each other: sections of tiles, each the most expensive
// first. A section ends where the next tile sees none of the keys before, as a sequence does, once
// they are `keys_near`, and while at least `blocks_last` blocks follow. So the last section can
// fill up what long tiles leave.
void worklist_order(struct worklist *list, int64_t row_step, int64_t keys_near,
                    int64_t blocks_last);

// How a device goes over a list: thread blocks come as struct forward_work says.
struct work_load {
    int32_t processors; // each works on one thread block at a time
    int32_t heads, section, sections;
    // What a block of keys takes, of a tile with rows for so many groups of 64: [0] for one.
    int32_t group_time[WORK_GROUPS_MOST];
    int32_t tile_time; // what a tile takes beside its blocks
};

// When the last processor is done. -1: no memory to tell.
int64_t worklist_time(const struct worklist *list, const struct work_load *load);

void worklist_fini(struct worklist *list);

#ifdef __cplusplus
}
#endif

#endif
