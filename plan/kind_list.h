// SPDX-License-Identifier: Apache-2.0
// The kinds of jobs: X(name) stands for job_kind_NAME (plan/kind.h) and
// rank_kind_NAME (rank/kind.h).
#ifndef CPATTN_PLAN_KIND_LIST_H
#define CPATTN_PLAN_KIND_LIST_H

#define KIND_LIST(X) X(attention) X(collective) X(linear)

#endif
