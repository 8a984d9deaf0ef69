// SPDX-License-Identifier: Apache-2.0
// Test problems for attention kernels: a shape and its slices, either random or one rectangle.
#ifndef CPATTN_TESTS_CUDA_PROBLEM_H
#define CPATTN_TESTS_CUDA_PROBLEM_H

#include "kernels/attention.h"

#define PROBLEM_SLICES_MAX 12
#define PROBLEM_PAD_ROWS   2 // in random problems, after the last row of each side

struct problem {
    struct attention_shape shape;
    struct slice slices[PROBLEM_SLICES_MAX];
    int32_t slice_count;
    int64_t q_rows, kv_rows; // rows of the tensors; shape.q_rows is equal or slightly larger
    int64_t bias_count;      // elements of the bias; 0: no bias
    size_t skew;             // misalignment of inputs in bytes
    float magnitude;         // factor of the values of Q
};

// Draws head dims, numbers of heads, row steps, masks and biases. Slices may overlap, be empty, or
// have a mask that hides all pairs.
struct problem problem_draw(enum case_dtype dtype);

// One head, and one slice with all rows and no mask.
struct problem problem_rectangle(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
                                 int64_t kv_len);

// Prints the problem as comments of the test.
void problem_note(const struct problem *p);

// A random element of a list.
#define ONE_OF(...)                                                                                \
    problem_one_of((const int64_t[]){__VA_ARGS__},                                                 \
                   (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
int64_t problem_one_of(const int64_t *list, int count);

#endif
