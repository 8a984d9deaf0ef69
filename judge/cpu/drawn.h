// SPDX-License-Identifier: Apache-2.0
// A cache of the inputs that the twin has drawn. All query heads of a KV head, all chunks of a
// rank, and the passes over queries and over keys use the same inputs of the other side.
#ifndef CPATTN_JUDGE_CPU_DRAWN_H
#define CPATTN_JUDGE_CPU_DRAWN_H

#include <stddef.h>
#include <stdint.h>

#include "judge/inputs.h"
#include "judge/mask.h"

// Upper bounds in bytes: of the whole cache, and of one head of a tensor in one sequence. Rows of a
// longer sequence are drawn at each use, which takes little time compared with their products.
#define DRAWN_BYTES_MAX     ((size_t)32 << 20)
#define DRAWN_ROW_BYTES_MAX ((size_t)4 << 20)

// Used by one thread.
struct drawn;

// NULL: memory is short; drawn_rows() then keeps nothing.
struct drawn *drawn_create(void);
void drawn_destroy(struct drawn *all); // accepts NULL
size_t drawn_bytes(const struct drawn *all);

// Begins a call of the twin for a case. Rows returned by drawn_rows() are valid until the next
// drawn_begin(). Frees the inputs of any other case. Accepts NULL.
void drawn_begin(struct drawn *all, const struct cp_case *c);

// Returns rows [positions][d] of an input, rounded to the case's dtype, in the cache or in
// `scratch` [positions][d]. Sets *rms to the RMS of their elements. `all` may be NULL.
const float *drawn_rows(struct drawn *all, const struct cp_case *c, enum input_tensor tensor,
                        int sequence, int head, struct range positions, float *scratch, float *rms);

#endif
