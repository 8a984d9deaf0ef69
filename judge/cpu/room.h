// SPDX-License-Identifier: Apache-2.0
// Memory that is kept between calls of judge/cpu/expected.h: scratch, and inputs that are drawn, as
// fp32 and packed for products on AMX.
#ifndef CPATTN_JUDGE_CPU_ROOM_H
#define CPATTN_JUDGE_CPU_ROOM_H

#include "common/amx.h"
#include "judge/cpu/drawn.h"
#include "judge/inputs.h"
#include "judge/mask.h"

// Zeroed before its first use. For one thread.
struct room {
    char *base;
    size_t bytes;
    struct operands *operands; // packed inputs
    struct drawn *drawn;       // inputs of the twin
};
void room_fini(struct room *r);

// Makes r->base at least that large, aligned to 64 bytes; its contents are lost.
enum status room_grow(struct room *r, size_t bytes, struct error *error) MUST_CHECK;

// NULL: memory is short, and inputs are drawn for each use.
struct drawn *room_drawn(struct room *r);

// Positions of a bf16 input of one sequence and head as right factors. Factors are finite also
// before and after these positions, up to multiples of AMX_DEPTH.
struct operand {
    enum input_tensor tensor;
    int sequence, head;
    int64_t base, capacity; // allocated positions, multiples of AMX_DEPTH
    struct range loaded;
    int64_t d;
    uint16_t *across; // [d][positions]
    uint16_t *along;  // [positions][d]
    float *squares;   // [positions]: sums over d
    void *memory;     // of all these
    size_t bytes;
    uint64_t used; // number of the last call that used it
};

// Packs positions of an input, or finds them packed: those of the heads used last are kept. The
// room owns *operand, which is valid until the third call after this one. RESOURCE_EXHAUSTED:
// memory is short.
enum status room_operand(struct room *r, const struct cp_case *c, enum input_tensor tensor,
                         int sequence, int head, struct range positions,
                         const struct operand **operand, struct error *error) MUST_CHECK;

// The factors from a position on, a multiple of AMX_DEPTH.
struct amx_right operand_across(const struct operand *o, int64_t position);
struct amx_right operand_along(const struct operand *o, int64_t position);

// The RMS of the elements of these positions.
double operand_rms(const struct operand *o, struct range positions);

#endif
