// SPDX-License-Identifier: Apache-2.0
// Outputs of reference and twin (judge/cpu/expected.h).
#ifndef CPATTN_JUDGE_CPU_OUTPUTS_H
#define CPATTN_JUDGE_CPU_OUTPUTS_H

#include <stdint.h>

// Sums over queries. Each is NULL or initialized by the caller. dbias_twin is the twin's sum;
// dsink_twin_squares sums (twin's term - term)^2. *_terms sum the squares of the terms that cancel:
// for dsink rules_sink_square(), for dbias P^2 (dP^2 + delta^2 + rules_product_squares()) without
// the slope of a softcap.
struct expected_sums {
    double *max_logit; // raised to the largest visible logit
    double *dsink, *dsink_twin_squares, *dsink_terms;
    double *dbias, *dbias_twin; // [n][dbias_stride]
    double *dbias_terms;        // set if dbias_twin is
    int64_t dbias_stride;       // 0: all queries add to the same row
};

// Rows of one (sequence, query head): out [n][d_v], dq [n][d_qk], the others [n]. lse is the
// natural logarithm and includes the sink; -inf for a row that sees nothing. `terms` is the RMS
// that an element of dq would have if nothing cancelled: terms of judge/cpu/reference.h * RMS of K.
struct expected_queries {
    double *out, *lse, *delta, *dq, *terms;
    float *out_twin, *dq_twin;
    double *delta_twin;
    struct expected_sums sums;
};

// Rows of one (sequence, key head): dk [n][d_qk], dv [n][d_v], terms [n] of dk.
struct expected_keys {
    double *dk, *dv, *terms;
    float *dk_twin, *dv_twin;
};

// Statistics of all queries of the heads that share a key head: [heads / kv_heads][tokens of the
// sequence].
struct expected_statistics {
    const double *lse, *delta, *delta_twin;
};

#endif
