// SPDX-License-Identifier: Apache-2.0
// Groups of examined rows: the rows of one sequence and head, or single rows. Rows of dbias are
// always single. A mistake may be in some groups only.
#ifndef CPATTN_JUDGE_DIAGNOSIS_GROUPS_H
#define CPATTN_JUDGE_DIAGNOSIS_GROUPS_H

#include "judge/diagnosis/trial.h"

struct groups {
    const struct diagnosis_input *in;
    bool examined[DIAGNOSIS_ROWS_MAX]; // rows of the input that are in the trial
    bool wrong[DIAGNOSIS_ROWS_MAX];    // the group of the row has a wrong row
    bool single;                       // each row is a group
};

// Fills in the groups of a trial.
void groups_init(struct groups *x, const struct trial *t, bool single);

// Copies the examined rows of wrong groups, and returns their number; 0 if no group is right.
int groups_wrong_rows(const struct groups *x, struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX]);

// Says which groups are wrong, such as "in heads 1 and 3, not in head 4".
void groups_name(const struct groups *x, char *text, size_t size);

#endif
