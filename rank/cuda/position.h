// SPDX-License-Identifier: Apache-2.0
// The position of a device in a plan, derived from its marks; for the progress word and error
// messages.
#ifndef CPATTN_RANK_CUDA_POSITION_H
#define CPATTN_RANK_CUDA_POSITION_H

#include <stdbool.h>

#include "common/report.h"
#include "rank/cuda/marks.h"

struct position {
    const struct plan *plan;
    const struct marks *marks; // of each stream: 1 + index of the last finished marked operation
    struct progress *words;    // of all ranks
    uint64_t job;
};

// True if the end of an operation is marked: exchanges and attention.
bool position_is_marked(const struct op *op);

// Writes an operation into the rank's progress word. `waiting_for`: a rank, or -1.
void position_note(const struct position *p, const struct op *op, int waiting_for);

// Reads the marks and writes the device's position into the progress word. Returns the current
// operation of the plan; NULL: the plan is finished, or there are no marks.
const struct op *position_look(const struct position *p);

#endif
