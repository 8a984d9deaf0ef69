// SPDX-License-Identifier: Apache-2.0
// The tail of a backward call: tiles of the last heads are cut into pieces so that all thread
// blocks end at about the same time. Host code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_TAIL_H
#define CPATTN_KERNELS_CUDA_WORKLIST_TAIL_H

#include "kernels/cuda/worklist_backward.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a list is processed: each thread block takes one tile and one unit head. Sections of heads
// come one after the other; a section is processed tile by tile.
struct backward_load {
    int32_t processors; // thread blocks that run at the same time
    int32_t heads;      // unit heads; all have the same tiles
    int32_t section;    // heads in a section, 1..heads
    int32_t repeats;    // times a thread block processes a tile's steps: its query heads
    // Thread blocks take turns at dQ, and process the tiles and the steps of each from the last to
    // the first.
    bool turns;
};

// Adds a tail to a list without chains if a simulation of the thread blocks ends earlier with it.
// RESOURCE_EXHAUSTED: memory is short, or a number exceeds its type; the list then has no tail.
enum status backward_worklist_tail(struct backward_worklist *list, const struct backward_load *load,
                                   struct error *error) MUST_CHECK;

// Time until the last thread block is done, in steps, with the tail that backward_worklist_tail()
// would add. Simulated; with very many thread blocks, the average load of a processor. Returns -1
// when memory is short.
int64_t backward_worklist_time(const struct backward_worklist *list,
                               const struct backward_load *load) MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
