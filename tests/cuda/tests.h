// SPDX-License-Identifier: Apache-2.0
// The tests of the program test_kernels_cuda, in the order in which they run. Each is a function
// without arguments, in a file of its part.
#ifndef CPATTN_TESTS_CUDA_TESTS_H
#define CPATTN_TESTS_CUDA_TESTS_H

#define TEST_LIST(X)                                                                               \
    X(ops_report_what_went_wrong)                                                                  \
    X(ops_memory_is_recycled)                                                                      \
    X(ops_add)                                                                                     \
    X(ops_max)                                                                                     \
    X(ops_fill)                                                                                    \
    X(ops_convert_sizes)                                                                           \
    X(ops_convert_values)                                                                          \
    X(ops_row_dot)                                                                                 \
    X(ops_fill_heads)                                                                              \
    X(ops_sink_grad)                                                                               \
    X(ops_of_more_than_2_31_elements)                                                              \
    X(regions_copy)                                                                                \
    X(regions_add)                                                                                 \
    X(digest_sums)                                                                                 \
    X(inputs_of_generated_cases)                                                                   \
    X(inputs_beyond_2_32_elements)                                                                 \
    X(inputs_of_every_factor)                                                                      \
    X(padding_of_generated_cases)

#define TEST_DECLARE(name) void name(void);
TEST_LIST(TEST_DECLARE)
#undef TEST_DECLARE

#endif
