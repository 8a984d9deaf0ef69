// SPDX-License-Identifier: Apache-2.0
// The position of a device in a plan, from its marks; for the progress word and error messages.
#ifndef CPATTN_RANK_CUDA_POSITION_H
#define CPATTN_RANK_CUDA_POSITION_H

#include <stdbool.h>

#include "common/report.h"
#include "rank/cuda/marks.h"

struct position {
    const struct plan *plan;
    const struct marks *marks; // one behind the index of the newest operation that is done
    struct progress *words;    // of all ranks
    uint64_t job;
};

// Whether the end of an operation is marked: small ones do not pay.
bool position_is_marked(const struct op *op);

// Writes an operation into the rank's progress word. `waiting_for`: a rank, or -1.
void position_note(const struct position *p, const struct op *op, int waiting_for);

// Writes into it where the device is, as far as marks tell: at an operation of the plan, which is
// returned, or behind it, NULL. Without marks it tells nothing: NULL.
const struct op *position_look(const struct position *p);

#endif
