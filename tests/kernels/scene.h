// SPDX-License-Identifier: Apache-2.0
// A sequence for tests of attention kernels: cut into spans that lie scattered in memory whose
// other rows are poisoned, with the slices between all spans, and the fp64 reference to compare
// with.
#ifndef CPATTN_TESTS_KERNELS_SCENE_H
#define CPATTN_TESTS_KERNELS_SCENE_H

#include "kernels/backend.h"

#define SCENE_SPANS_MAX 6

struct scene_sample {
    int64_t sq, sk;
    enum case_mask mask;
    int64_t left, right; // as window_left, window_right
    int h, hk, dk, dv;   // heads and head dimensions
    enum case_dtype dtype;
    int step, q_spans, k_spans;
};

// One side of the sequence: span s covers positions [cut[s], cut[s + 1]) from memory row first[s]
// on.
struct scene_side {
    int spans, step;
    int64_t cut[SCENE_SPANS_MAX + 1], first[SCENE_SPANS_MAX];
    int64_t rows;
};

// Rows without a token have NaN in the inputs and a sentinel in the accumulators; the others have
// the inputs of sequence 0 and the initial values.
struct scene {
    struct cp_case c;
    struct scene_side q, k;
    void *q_data, *k_data, *v_data, *d_out_data;
    float *o, *lse, *d, *dq, *dk, *dv;
    struct slice slices[SCENE_SPANS_MAX * SCENE_SPANS_MAX];
    int slice_count;
};

void scene_init(struct scene *s, const struct scene_sample *sample);
void scene_fini(struct scene *s);

int64_t scene_row(const struct scene_side *side, int64_t position);
struct attention_shape scene_shape(const struct scene *s);

// With all slices in one call, or each in a call of its own. run() is forward, row_dot, backward.
void scene_forward(struct scene *s, struct attention_backend *backend, bool one_call);
void scene_backward(struct scene *s, struct attention_backend *backend, bool one_call);
void scene_run(struct scene *s, struct attention_backend *backend, bool one_call);

// Largest error relative to the largest expected value, by tensor; infinite if one side is not
// finite and the other differs.
struct scene_errors {
    double o, lse, dq, dk, dv;
};
struct scene_errors scene_compare(const struct scene *s);

// Limits of these errors, except for lse: on AMX P and dS are two bf16 numbers, less precise than
// fp32.
#define SCENE_TOLERANCE     5e-6
#define SCENE_TOLERANCE_AMX 1e-5
double scene_tolerance(enum case_dtype dtype);

// Number of overwritten sentinels in the accumulators.
int64_t scene_touched(const struct scene *s);

// Largest difference of two arrays, relative to the largest value of the second.
double scene_difference(const float *a, const float *b, int64_t count);

// A CPU backend; fails the test if there is none.
struct attention_backend *scene_backend(void);

#endif
