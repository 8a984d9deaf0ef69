// SPDX-License-Identifier: Apache-2.0
// The twin and the fast reference of bf16 cases on AMX (common/amx.h): the functions of
// judge/cpu/twin.h with matrices in bf16 pieces. P and dS have two pieces each: the twin's rounded
// value, and 8 bits of the rest, so that the error of the reference is at most a five hundredth of
// the twin's rounding. Q, K, V and dO have one exact piece.
//
// Rows of a matrix are tokens of the call's side, 64 at a time; columns are tokens of the other
// side. For keys the scores are computed transposed, so that the sums of a key run over a row, too.
#ifndef CPATTN_JUDGE_CPU_MATRIX_H
#define CPATTN_JUDGE_CPU_MATRIX_H

#include "judge/cpu/outputs.h"
#include "judge/cpu/room.h"
#include "judge/mask.h"
#include "plan/case.h"

// True if the processor and the case support it.
bool matrix_fits(const struct cp_case *c);

// See judge/cpu/twin.h.
enum status matrix_queries(const struct cp_case *c, bool reference, int sequence, int head,
                           struct range queries, struct room *room,
                           const struct expected_queries *e, struct error *error) MUST_CHECK;

enum status matrix_keys(const struct cp_case *c, bool reference, int sequence, int kv_head,
                        struct range keys, const struct expected_statistics *statistics,
                        struct room *room, const struct expected_keys *e,
                        struct error *error) MUST_CHECK;

#endif
