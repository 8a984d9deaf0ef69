# SPDX-License-Identifier: Apache-2.0
test_programs += tests/kernels/test_vector
tests_kernels_test_vector_SOURCES = tests/kernels/test_vector.c

test_programs += tests/kernels/test_attention
tests_kernels_test_attention_SOURCES = tests/kernels/test_attention.c tests/kernels/scene.c \
    tests/kernels/scene.h

test_programs += tests/kernels/test_logits
tests_kernels_test_logits_SOURCES = tests/kernels/test_logits.c

test_programs += tests/kernels/test_mutated_kernels
tests_kernels_test_mutated_kernels_SOURCES = tests/kernels/test_mutated_kernels.c tests/kernels/scene.c \
    tests/kernels/scene.h
tests_kernels_test_mutated_kernels_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_kernels_test_mutated_kernels_LDADD = $(mutated_libs)
tests_kernels_test_mutated_kernels_LDFLAGS = $(mutated_ldflags)

test_programs += tests/kernels/test_own
tests_kernels_test_own_SOURCES = tests/kernels/test_own.c

test_programs += tests/kernels/test_groups
tests_kernels_test_groups_SOURCES = tests/kernels/test_groups.c

# Host code of the CUDA backend that does not need CUDA.
test_programs += tests/kernels/test_worklist
tests_kernels_test_worklist_SOURCES = tests/kernels/test_worklist.c tests/kernels/drawn_slices.c \
    tests/kernels/drawn_slices.h \
    kernels/cuda/worklist.c kernels/cuda/worklist.h kernels/cuda/clocks.h \
    kernels/cuda/intervals.c kernels/cuda/intervals.h

test_programs += tests/kernels/test_cap_series
tests_kernels_test_cap_series_SOURCES = tests/kernels/test_cap_series.c kernels/cuda/cap_series.c \
    kernels/cuda/cap_series.h

test_programs += tests/kernels/test_worklist_backward
tests_kernels_test_worklist_backward_SOURCES = tests/kernels/test_worklist_backward.c \
    tests/kernels/drawn_slices.c tests/kernels/drawn_slices.h \
    kernels/cuda/worklist_backward.c kernels/cuda/worklist_backward.h \
    kernels/cuda/worklist_tail.c kernels/cuda/worklist_tail.h kernels/cuda/clocks.h \
    kernels/cuda/intervals.c kernels/cuda/intervals.h
