// SPDX-License-Identifier: Apache-2.0
// A trial of the forward: a problem with inputs, computed on the device and by the CPU backend.
#ifndef CPATTN_TESTS_CUDA_FORWARD_TRIAL_H
#define CPATTN_TESTS_CUDA_FORWARD_TRIAL_H

#include "tests/cuda/problem.h"

// O and LSE before the launch. PRIOR_SINK: O = 0, with an LSE.
enum prior { PRIOR_NOTHING, PRIOR_SINK, PRIOR_RESULT, PRIORS };

// Logits that are chosen: `level`, but two keys (-1: none) have `heights`. If `loud` is not
// negative, only that row of the first slice has them, and other rows a tenth of them.
struct steep {
    double level, heights[2];
    int64_t peaks[2], loud;
};

struct trial {
    struct problem problem;
    enum prior prior;
    bool wants_max;
    bool rising;               // logits change steadily with the index of the key
    int hiding;                // one of this many bias elements is -inf; 0: none
    const struct steep *steep; // chosen logits, or NULL
    double depth;              // with `rising`: is subtracted from all elements of K
    double max_admitted;       // tolerance of max_logit; 0: that of the logits
};

// A random problem and inputs.
struct trial trial_draw(enum case_dtype dtype);

// The same without the features that only some kernels support: bias, softcap, max_logit, unaligned
// rows, negative scales. Rows of a head in K and V are multiples of 16 bytes.
struct trial trial_draw_plain(enum case_dtype dtype);

// problem_rectangle() with one more row on each side, which is NaN.
struct trial trial_of(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
                      int64_t kv_len);

// Runs the forward on the device twice. Expects the same bits both times, and the result of the CPU
// backend within tolerances: P is rounded once to the dtype before the product with V; logits are
// in fp32, and small scores with a softcap use a short polynomial; max_logit does not use it.
// Returns true if all is right.
bool trial_check(const struct trial *trial);

#endif
