# SPDX-License-Identifier: Apache-2.0
test_programs += tests/plan/test_case
tests_plan_test_case_SOURCES = tests/plan/test_case.c

test_programs += tests/plan/test_cost
tests_plan_test_cost_SOURCES = tests/plan/test_cost.c

test_programs += tests/plan/test_case_fields
tests_plan_test_case_fields_SOURCES = tests/plan/test_case_fields.c

test_programs += tests/plan/test_support
tests_plan_test_support_SOURCES = tests/plan/test_support.c

test_programs += tests/plan/test_shard
tests_plan_test_shard_SOURCES = tests/plan/test_shard.c

test_programs += tests/plan/test_layout
tests_plan_test_layout_SOURCES = tests/plan/test_layout.c tests/plan/layout.c tests/plan/layout.h

test_programs += tests/plan/test_access
tests_plan_test_access_SOURCES = tests/plan/test_access.c tests/plan/touches.c tests/plan/touches.h

test_programs += tests/plan/test_bias
tests_plan_test_bias_SOURCES = tests/plan/test_bias.c

test_programs += tests/plan/test_builder
tests_plan_test_builder_SOURCES = tests/plan/test_builder.c

test_programs += tests/plan/test_plan
tests_plan_test_plan_SOURCES = tests/plan/test_plan.c
tests_plan_test_plan_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=reallocarray

test_programs += tests/plan/test_folds
tests_plan_test_folds_SOURCES = tests/plan/test_folds.c

test_programs += tests/plan/test_plan_check
tests_plan_test_plan_check_SOURCES = tests/plan/test_plan_check.c

test_programs += tests/plan/test_plan_ring
tests_plan_test_plan_ring_SOURCES = tests/plan/test_plan_ring.c

test_programs += tests/plan/test_plan_mutations
tests_plan_test_plan_mutations_SOURCES = tests/plan/test_plan_mutations.c
tests_plan_test_plan_mutations_LDADD = $(mutated_libs)
tests_plan_test_plan_mutations_LDFLAGS = $(mutated_ldflags)
