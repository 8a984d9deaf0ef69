// SPDX-License-Identifier: Apache-2.0
// The twin and the fast reference: the functions of judge/cpu/expected.h without a choice of
// precision.
#ifndef CPATTN_JUDGE_CPU_TWIN_H
#define CPATTN_JUDGE_CPU_TWIN_H

#include "judge/cpu/outputs.h"
#include "judge/cpu/room.h"
#include "judge/mask.h"
#include "plan/case.h"

// `reference`: also fills the members of the reference; otherwise only those of the twin, and
// terms.
enum status twin_queries(const struct cp_case *c, bool reference, int sequence, int head,
                         struct range queries, struct room *room, const struct expected_queries *e,
                         struct error *error) MUST_CHECK;

enum status twin_keys(const struct cp_case *c, bool reference, int sequence, int kv_head,
                      struct range keys, const struct expected_statistics *statistics,
                      struct room *room, const struct expected_keys *e,
                      struct error *error) MUST_CHECK;

#endif
