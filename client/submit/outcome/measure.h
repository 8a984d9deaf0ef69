// SPDX-License-Identifier: Apache-2.0
// Where the time of an answer went, and how fast the attention was. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_MEASURE_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_MEASURE_H

#include "client/cpattn.h"
#include "plan/case.h"

// The way from request to verdict, in order. The parts of the ranks' work are each those of the
// rank that took longest for it.
enum measure_part {
    PART_QUEUE, // waited for its turn
    PART_START, // waited for processes to start
    PART_INPUTS,
    PART_RUN, // forward and backward
    PART_REFERENCE,
    PART_COMPARE,
    PART_REST, // of the total, between the others
    PARTS,
};
const char *measure_part_name(enum measure_part part);

void measure_parts(const struct cpattn_result *result, uint64_t parts_ns[PARTS]);

// Floating-point operations per second of a rank: in forward and backward alone, and over both. 0
// where no time or nothing was counted.
struct measure_rates {
    double forward, backward, both;
};
struct measure_rates measure_rates(const struct cp_case *c, const struct cpattn_rank *rank);

#endif
