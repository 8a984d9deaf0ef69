// SPDX-License-Identifier: Apache-2.0
// The end of a backward call: tiles of the last heads are cut so that all thread blocks end at
// about the same time. Host code.
#ifndef CPATTN_KERNELS_CUDA_WORKLIST_TAIL_H
#define CPATTN_KERNELS_CUDA_WORKLIST_TAIL_H

#include "kernels/cuda/worklist_backward.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a list is worked on: by thread blocks of a tile and a head each, in sections of heads, in
// each section tile by tile.
struct backward_load {
    int32_t processors; // thread blocks that run at the same time
    int32_t heads;      // all have the same tiles
    int32_t section;    // heads in a section, 1..heads
    int32_t repeats;    // how many times a thread block goes through a tile's steps
    // Thread blocks take turns at dQ: they work on the tiles, and on the steps of each, from the
    // last to the first.
    bool turns;
};

// Adds a tail to a list without chains, if that lets the work end earlier; a simulation of the
// thread blocks decides. RESOURCE_EXHAUSTED when memory is short or numbers exceed their types; the
// list is as it was then.
enum status backward_worklist_tail(struct backward_worklist *list, const struct backward_load *load,
                                   struct error *error) MUST_CHECK;

// How many steps it takes until the last thread block is done, with the tail that
// backward_worklist_tail() would add. Simulated; with very many thread blocks an average. -1 when
// memory is short.
int64_t backward_worklist_time(const struct backward_worklist *list,
                               const struct backward_load *load) MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
