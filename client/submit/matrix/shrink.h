// SPDX-License-Identifier: Apache-2.0
// Shortens the sequences of a case, for slow machines. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_SHRINK_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_SHRINK_H

#include "plan/case.h"

// Divides by `divisor` (>= 1), rounding up: seqlen, lengths, windows, and the padding of each
// sequence. So no positive number becomes 0, sequences still fit, and padded sequences remain
// padded. pad_multiple is unchanged.
void shrink_case(struct cp_case *c, int64_t divisor);

#endif
