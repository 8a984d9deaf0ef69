// SPDX-License-Identifier: Apache-2.0
// LSE and delta of all queries of a sequence and head: from the caller, or computed where that is
// little work.
#ifndef CPATTN_JUDGE_DIAGNOSIS_STATISTICS_H
#define CPATTN_JUDGE_DIAGNOSIS_STATISTICS_H

#include "judge/diagnosis.h"
#include "judge/diagnosis/panel.h"

// Pairs of a query and a key of one head that are computed at most, where the caller has nothing.
#define STATISTICS_PAIRS_MAX (INT64_C(1) << 22)

// [tokens of the sequence]. False where they are not to be had.
bool statistics_of_head(const struct diagnosis_input *in, int32_t sequence, int head, double *lse,
                        double *delta);

// Of the columns of a panel of key rows, into its lse and delta.
bool statistics_of_keys(const struct diagnosis_input *in, struct panel *p);

// All queries of a sequence and head, as panels of as many rows as the bounds allow, one after the
// other. twist_statistics() has been called for each.
struct sweep {
    struct panel panel;
    int64_t first, positions[512];
};
bool sweep_begin(struct sweep *s, const struct cp_case *c, int32_t sequence, int head);
bool sweep_next(struct sweep *s); // false behind the last, or where memory is short
void sweep_end(struct sweep *s);

#endif
