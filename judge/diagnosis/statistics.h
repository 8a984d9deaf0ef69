// SPDX-License-Identifier: Apache-2.0
// LSE and delta of all queries of a sequence and head. They come from the caller, or are computed
// if this is little work.
#ifndef CPATTN_JUDGE_DIAGNOSIS_STATISTICS_H
#define CPATTN_JUDGE_DIAGNOSIS_STATISTICS_H

#include "judge/diagnosis.h"
#include "judge/diagnosis/panel.h"

// Maximum number of pairs of a query and a key of one head that are computed.
#define STATISTICS_PAIRS_MAX (INT64_C(1) << 22)

// Fills lse and delta [tokens of the sequence]. False if they are not available.
bool statistics_of_head(const struct diagnosis_input *in, int32_t sequence, int head, double *lse,
                        double *delta);

// Fills lse and delta of a panel of key rows. False if they are not available.
bool statistics_of_keys(const struct diagnosis_input *in, struct panel *p);

// A walk through all queries of a sequence and head, in panels of as many rows as the bounds allow.
// Each panel has LSE and delta (variant_statistics()).
struct sweep {
    struct panel panel;
    int64_t first, positions[512];
};
bool sweep_begin(struct sweep *s, const struct cp_case *c, int32_t sequence, int head);
bool sweep_next(struct sweep *s); // false after the last, or if memory is short
void sweep_end(struct sweep *s);

#endif
