// SPDX-License-Identifier: Apache-2.0
// Inputs that the twin has drawn and may need again: those of the other side are the same for all
// query heads of a KV head, for the chunks of a rank, and for queries and keys.
#ifndef CPATTN_JUDGE_CPU_DRAWN_H
#define CPATTN_JUDGE_CPU_DRAWN_H

#include <stddef.h>
#include <stdint.h>

#include "judge/inputs.h"
#include "judge/mask.h"

// Upper bound of the kept memory, and of that of one tensor's head in one sequence: rows of a
// longer one are drawn whenever they are needed, which takes little beside their products.
#define DRAWN_BYTES_MAX     ((size_t)32 << 20)
#define DRAWN_ROW_BYTES_MAX ((size_t)4 << 20)

// For one thread.
struct drawn;

// NULL: memory is short; drawn_rows() then keeps nothing.
struct drawn *drawn_create(void);
void drawn_destroy(struct drawn *all); // accepts NULL
size_t drawn_bytes(const struct drawn *all);

// Begins a call for a case: rows of drawn_rows() are valid until the next one. Forgets the inputs
// of another case. Accepts NULL.
void drawn_begin(struct drawn *all, const struct cp_case *c);

// Returns rows [positions][d] of an input, rounded to the case's dtype, from what is kept or in
// `scratch` of that size, and the RMS of their elements. `all` may be NULL.
const float *drawn_rows(struct drawn *all, const struct cp_case *c, enum input_tensor tensor,
                        int sequence, int head, struct range positions, float *scratch, float *rms);

#endif
