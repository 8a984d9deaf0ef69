// SPDX-License-Identifier: Apache-2.0
// The rules of plan/support.c for lists; plan/case.h has the other functions of plan/lengths.c.
// Each rule requires that the rules before it hold.
#ifndef CPATTN_PLAN_LENGTHS_H
#define CPATTN_PLAN_LENGTHS_H

#include "plan/case.h"

// One number for each sequence.
enum status lengths_check_counts(const struct cp_case *c, struct error *error) MUST_CHECK;

// No length beyond the seqlen of its side.
enum status lengths_check_values(const struct cp_case *c, struct error *error) MUST_CHECK;

// Padded lengths and pad_multiple only with THD.
enum status lengths_check_format(const struct cp_case *c, struct error *error) MUST_CHECK;

// No sequence occupies fewer tokens than it has. The key side may have the lengths of the query
// side.
enum status lengths_check_padded(const struct cp_case *c, struct error *error) MUST_CHECK;

// pad_multiple has an effect.
enum status lengths_check_multiple(const struct cp_case *c, struct error *error) MUST_CHECK;

#endif
