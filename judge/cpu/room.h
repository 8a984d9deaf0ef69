// SPDX-License-Identifier: Apache-2.0
// Memory kept between calls of judge/cpu/expected.h: scratch, and caches of drawn inputs, in fp32
// and packed for AMX.
#ifndef CPATTN_JUDGE_CPU_ROOM_H
#define CPATTN_JUDGE_CPU_ROOM_H

#include "common/amx.h"
#include "judge/cpu/drawn.h"
#include "judge/inputs.h"
#include "judge/mask.h"

// The caller zeroes it before the first use. Used by one thread.
struct room {
    char *base;
    size_t bytes;
    struct operands *operands; // cache of packed inputs
    struct drawn *drawn;       // cache of inputs in fp32
};
void room_fini(struct room *r);

// Makes r->base at least `bytes` large, aligned to 64 bytes. Its contents may be lost.
enum status room_grow(struct room *r, size_t bytes, struct error *error) MUST_CHECK;

// Returns the cache of inputs in fp32. NULL: memory is short; inputs must be drawn for each use.
struct drawn *room_drawn(struct room *r);

// Positions of a bf16 input of one sequence and head, packed as right factors. Elements before and
// after these positions, up to multiples of AMX_DEPTH, are finite.
struct operand {
    enum input_tensor tensor;
    int sequence, head;
    int64_t base, capacity; // first allocated position and their number, multiples of AMX_DEPTH
    struct range loaded;    // packed positions
    int64_t d;
    uint16_t *across; // [d][positions]
    uint16_t *along;  // [positions][d]
    float *squares;   // [positions]: sums over d
    void *memory;     // of these arrays
    size_t bytes;     // of `memory`
    uint64_t used;    // number of the last call that used the operand
};

// Returns an operand with these positions of an input. Packs them unless they are cached; the cache
// keeps the most recently used heads. The room owns *operand, which is valid until the third call
// after this one. RESOURCE_EXHAUSTED: memory is short.
enum status room_operand(struct room *r, const struct cp_case *c, enum input_tensor tensor,
                         int sequence, int head, struct range positions,
                         const struct operand **operand, struct error *error) MUST_CHECK;

// The right factors [d][positions] and [positions][d] from `position` on, which is a multiple of
// AMX_DEPTH.
struct amx_right operand_across(const struct operand *o, int64_t position);
struct amx_right operand_along(const struct operand *o, int64_t position);

// The RMS of the elements of these positions.
double operand_rms(const struct operand *o, struct range positions);

#endif
