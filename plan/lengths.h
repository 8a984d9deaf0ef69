// SPDX-License-Identifier: Apache-2.0
// The rules of plan/support.c that look at lists; the rest of plan/lengths.c is in plan/case.h.
// Each needs what the ones before it have admitted.
#ifndef CPATTN_PLAN_LENGTHS_H
#define CPATTN_PLAN_LENGTHS_H

#include "plan/case.h"

// One number for each sequence.
enum status lengths_check_counts(const struct cp_case *c, struct error *error) MUST_CHECK;

// No length beyond the seqlen of its side.
enum status lengths_check_values(const struct cp_case *c, struct error *error) MUST_CHECK;

// Lists and multiples of what sequences occupy with THD only.
enum status lengths_check_format(const struct cp_case *c, struct error *error) MUST_CHECK;

// No sequence occupies less than it has. Those of the key side may have lengths of the query side.
enum status lengths_check_padded(const struct cp_case *c, struct error *error) MUST_CHECK;

// A multiple is there for something.
enum status lengths_check_multiple(const struct cp_case *c, struct error *error) MUST_CHECK;

#endif
