// SPDX-License-Identifier: Apache-2.0
// The parts of the time of an answer, and the speed of the attention. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_MEASURE_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_MEASURE_H

#include "client/cpattn.h"
#include "plan/case.h"

// Parts of the time from request to verdict, in order. A part of the ranks' work is the time of the
// rank that takes longest for this part.
enum measure_part {
    PART_QUEUE, // waited for its turn
    PART_START, // waited for processes to start
    PART_INPUTS,
    PART_RUN, // forward and backward
    PART_REFERENCE,
    PART_COMPARE,
    PART_REST, // the rest of the total
    PARTS,
};
const char *measure_part_name(enum measure_part part);

void measure_parts(const struct cpattn_result *result, uint64_t parts_ns[PARTS]);

// Floating-point operations per second of a rank: in forward, in backward, and in both. 0 if no
// time or no operations were counted.
struct measure_rates {
    double forward, backward, both;
};
struct measure_rates measure_rates(const struct cp_case *c, const struct cpattn_rank *rank);

#endif
