// SPDX-License-Identifier: Apache-2.0
// Work list of a forward call: tiles of query rows. A query row is in at most one tile; a tile has
// all keys that its rows see. Host code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_H
#define CPATTN_KERNELS_CUDA_WORKLIST_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/attention.h"
#include "kernels/cuda/intervals.h"

// Keys of one slice for one tile: those that some row of the tile sees, preceded by the alignment
// keys of struct work_cut. Key j lies in row kv_row + j * row_step of K and V. Row r of the tile
// sees key j of the fragment iff low + r <= j < high + r.
struct work_fragment {
    int64_t kv_row;
    int64_t bias;      // offset of the tile's row 0 and key 0 in a head's bias, in elements
    int32_t keys;      // at least 1
    int32_t stored;    // keys [0, stored) exist, stored >= keys; later rows hold anything
    int32_t low, high; // within +-WORK_BOUND, which means no bound
    bool last;         // the last fragment of its tile
};
#define WORK_BOUND (1 << 30)

// Row r of the tile lies in row q_row + r * row_step of Q, O and LSE.
struct work_tile {
    int64_t q_row;
    int32_t rows; // 1..cut.rows
    int32_t fragment, fragment_count;
    int32_t blocks; // blocks of keys in all fragments: the cost of the tile
};

// Query rows of a group of warps; largest number of groups of a tile.
#define WORK_GROUP_ROWS  64
#define WORK_GROUPS_MOST 3

struct worklist {
    struct work_tile *tiles; // the most expensive first, until worklist_order()
    struct work_fragment *fragments;
    int32_t tile_count, fragment_count;
    int32_t tile_capacity, fragment_capacity;
};

// How to cut: at most `rows` queries in a tile and `keys` keys in a block. Each fragment begins a
// new block. unit > 0: a fragment begins at a bias column that is a multiple of `unit`, so that
// whole vectors can be copied. For this, up to unit - 1 keys that no row of the tile sees come
// first, if the slice has them.
//
// The last `last` queries are in tiles of `part` queries, so that the last thread blocks are
// shorter; 0: none are.
struct work_cut {
    int32_t rows, keys, unit, part;
    int64_t last;
};

// Cuts the slices. Rows that see no key may be in no tile. The list owns its memory:
// worklist_fini() frees it, after a failure too. RESOURCE_EXHAUSTED: memory is short, or a number
// exceeds its type; the contents of the list are then undefined.
enum status worklist_build(struct worklist *list, const struct attention_shape *shape,
                           const struct slice *slices, int32_t slice_count, struct work_cut cut,
                           struct error *error) MUST_CHECK;

// Places tiles that see the same keys near each other: in sections of tiles, each with the most
// expensive first. A section ends before a tile that sees none of the keys of the tiles just before
// it, as at a new sequence, if the section has at least `keys_near` keys and at least `blocks_last`
// blocks follow. So the last section is long enough to fill the gaps that long tiles leave.
void worklist_order(struct worklist *list, int64_t row_step, int64_t keys_near,
                    int64_t blocks_last);

// Model of a device for worklist_time(). Thread blocks start in the order of struct forward_work.
struct work_load {
    int32_t processors;               // each works on one thread block at a time
    int32_t heads, section, sections; // all heads, heads of a section, number of sections
    // group_time[g]: time of a block of keys in a tile whose rows fill g + 1 groups of 64.
    int32_t group_time[WORK_GROUPS_MOST];
    int32_t tile_time; // fixed time of a tile, beside its blocks
};

// Simulated time until the last processor is done, in the unit of `load`. -1: memory is short.
int64_t worklist_time(const struct worklist *list, const struct work_load *load);

void worklist_fini(struct worklist *list);

#ifdef __cplusplus
}
#endif

#endif
