// SPDX-License-Identifier: Apache-2.0
// The same case with shorter sequences, for machines that cannot wait for the long ones. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_SHRINK_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_SHRINK_H

#include "plan/case.h"

// Divides by `divisor` (>= 1), rounding up: seqlen, lengths, windows, and the padding between what
// a sequence has and what it occupies. So nothing becomes 0 that was not, nothing that fitted stops
// fitting, and what was padded stays padded. pad_multiple stays.
void shrink_case(struct cp_case *c, int64_t divisor);

#endif
