// SPDX-License-Identifier: Apache-2.0
// Memory that outlives the calls of judge/cpu/expected.h: scratch, and inputs that have been drawn
// and packed for products on AMX.
#ifndef CPATTN_JUDGE_CPU_ROOM_H
#define CPATTN_JUDGE_CPU_ROOM_H

#include "common/amx.h"
#include "judge/inputs.h"
#include "judge/mask.h"

// Memory that calls need and that outlives them; all zeros at first. Not for two threads.
struct room {
    char *base;
    size_t bytes;
    struct operands *operands; // inputs that are packed
};
void room_fini(struct room *r);

// Makes r->base at least that large, at a multiple of 64 bytes; what it held is lost.
enum status room_grow(struct room *r, size_t bytes, struct error *error) MUST_CHECK;

// Positions of a bf16 input of one sequence and head as right factors. Before and behind these
// positions, up to multiples of AMX_DEPTH, factors hold finite numbers.
struct operand {
    enum input_tensor tensor;
    int sequence, head;
    int64_t base, capacity; // positions that there is memory for, multiples of AMX_DEPTH
    struct range loaded;
    int64_t d;
    uint16_t *across; // [d][positions]
    uint16_t *along;  // [positions][d]
    float *squares;   // [positions]: sums over d
    void *memory;     // of all these
    size_t bytes;
    uint64_t used; // when, counted in calls
};

// Positions of an input, packed now or before: those of the heads used last are kept. *operand is
// the room's, and good until the third call from here. RESOURCE_EXHAUSTED when memory is short.
enum status room_operand(struct room *r, const struct cp_case *c, enum input_tensor tensor,
                         int sequence, int head, struct range positions,
                         const struct operand **operand, struct error *error) MUST_CHECK;

// The factors from a position on, which is a multiple of AMX_DEPTH.
struct amx_right operand_across(const struct operand *o, int64_t position);
struct amx_right operand_along(const struct operand *o, int64_t position);

// The RMS of the elements of these positions.
double operand_rms(const struct operand *o, struct range positions);

#endif
