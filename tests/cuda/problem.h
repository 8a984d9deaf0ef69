// SPDX-License-Identifier: Apache-2.0
// Problems for kernels on a device: a shape and slices, either random or one rectangle.
#ifndef CPATTN_TESTS_CUDA_PROBLEM_H
#define CPATTN_TESTS_CUDA_PROBLEM_H

#include "kernels/attention.h"

#define PROBLEM_SLICES_MAX 12
#define PROBLEM_PAD_ROWS   2 // in random problems, after the last row of each side

struct problem {
    struct attention_shape shape;
    struct slice slices[PROBLEM_SLICES_MAX];
    int32_t slice_count;
    int64_t q_rows, kv_rows; // of the tensors; shape.q_rows is as many or a few more
    int64_t bias_count;      // elements; 0: there is none
    size_t skew;             // misalignment of inputs in bytes
    float magnitude;         // of Q
};

// Random widths, numbers of heads, row steps, masks and biases; slices may overlap, be empty or
// hide all pairs.
struct problem problem_draw(enum case_dtype dtype);

// One slice of all rows without a mask, and one head.
struct problem problem_rectangle(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
                                 int64_t kv_len);

// Prints comments.
void problem_note(const struct problem *p);

// A random element of a list.
#define ONE_OF(...)                                                                                \
    problem_one_of((const int64_t[]){__VA_ARGS__},                                                 \
                   (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
int64_t problem_one_of(const int64_t *list, int count);

#endif
