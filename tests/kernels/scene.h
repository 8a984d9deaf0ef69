// SPDX-License-Identifier: Apache-2.0
// A scene: a sequence for tests of attention kernels, and its comparison with the fp64 reference.
// Queries and keys are cut into spans, which are scattered in memory. Rows without a token are
// poisoned. There is one slice for each pair of a query span and a key span.
#ifndef CPATTN_TESTS_KERNELS_SCENE_H
#define CPATTN_TESTS_KERNELS_SCENE_H

#include "kernels/backend.h"
#include "plan/case.h"

#define SCENE_SPANS_MAX 6

struct scene_sample {
    int64_t sq, sk; // numbers of queries and keys
    enum case_mask mask;
    int64_t left, right; // window_left and window_right of the case
    int h, hk, dk, dv;   // query heads, key heads, head dimensions of Q and K, and of V
    enum case_dtype dtype;
    int step, q_spans, k_spans; // step: rows between consecutive tokens of a span
};

// The queries or the keys. Span s covers positions [cut[s], cut[s + 1]). Its first token lies in
// memory row first[s]; consecutive tokens are `step` rows apart.
struct scene_side {
    int spans, step;
    int64_t cut[SCENE_SPANS_MAX + 1], first[SCENE_SPANS_MAX];
    int64_t rows; // total number of memory rows
};

// Rows without a token hold NaN in the inputs and a sentinel in the accumulators. Rows with a token
// hold the inputs of sequence 0, and in the accumulators the initial values: -inf in lse, 0 in the
// others.
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

// Memory row of a position.
int64_t scene_row(const struct scene_side *side, int64_t position);
struct attention_shape scene_shape(const struct scene *s);

// Run kernels of backend_cpu, with all slices in one call or with one call per slice. scene_run()
// runs forward, row_dot and backward. A kernel's error fails the test.
void scene_forward(struct scene *s, struct attention_backend *backend, bool one_call);
void scene_backward(struct scene *s, struct attention_backend *backend, bool one_call);
void scene_run(struct scene *s, struct attention_backend *backend, bool one_call);

// Largest absolute error of each tensor, relative to its largest expected absolute value. Infinite
// if the two values differ and one of them is not finite.
struct scene_errors {
    double o, lse, dq, dk, dv;
};
struct scene_errors scene_compare(const struct scene *s);

// Limits of these errors, except for lse. On AMX each element of P and dS is the sum of two bf16
// numbers, which is less precise than fp32.
#define SCENE_TOLERANCE     5e-6
#define SCENE_TOLERANCE_AMX 1e-5
double scene_tolerance(enum case_dtype dtype);

// Number of overwritten sentinels in O, LSE, dQ, dK and dV.
int64_t scene_touched(const struct scene *s);

// Largest absolute difference of two arrays, relative to the largest absolute value of b.
double scene_difference(const float *a, const float *b, int64_t count);

// Creates a CPU backend, which the caller destroys. An error fails the test.
struct attention_backend *scene_backend(void);

#endif
