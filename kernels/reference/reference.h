// SPDX-License-Identifier: Apache-2.0
// The independent reference: unfused attention in fp64 on the CPU, straight from the definition.
// Inputs come from kernels/inputs.h by global position, the mask from its definition per (query,
// key); it knows neither shards nor slices nor plans and shares no code with the kernels it judges.
//
// Positions are below the lengths of the sequence (case_length()); padding does not exist here.
//
// Memory is linear in the sequence lengths: a bounded number of rows is held at a time.
#ifndef CPATTN_KERNELS_REFERENCE_H
#define CPATTN_KERNELS_REFERENCE_H

#include "plan/case.h"

// Query side of one (sequence, query head) for positions [begin, end): out [n][d_v], lse [n]
// (natural logarithm, -inf for a row that sees nothing), and when training delta [n] = dO.O and dq
// [n][d_qk]. delta and dq may be NULL when not training. RESOURCE_EXHAUSTED when memory is short.
enum status reference_queries(const struct cp_case *c, int sequence, int head, int64_t begin,
                              int64_t end, double *out, double *lse, double *delta, double *dq,
                              struct error *error) MUST_CHECK;

// Key side of one (sequence, key head) for positions [begin, end): dk [n][d_qk], dv [n][d_v], from
// lse and delta of all queries of the heads that share the key head: [heads / kv_heads][seqlen_q],
// of which only those of tokens are read.
enum status reference_keys(const struct cp_case *c, int sequence, int kv_head, int64_t begin,
                           int64_t end, const double *lse, const double *delta, double *dk,
                           double *dv, struct error *error) MUST_CHECK;

#endif
