# SPDX-License-Identifier: Apache-2.0
test_programs += tests/judge/test_inputs
tests_judge_test_inputs_SOURCES = tests/judge/test_inputs.c

test_programs += tests/judge/test_weight
tests_judge_test_weight_SOURCES = tests/judge/test_weight.c tests/judge/dense.c tests/judge/dense.h

test_programs += tests/judge/test_reference
tests_judge_test_reference_SOURCES = tests/judge/test_reference.c tests/judge/dense.c tests/judge/dense.h

test_programs += tests/judge/test_rules
tests_judge_test_rules_SOURCES = tests/judge/test_rules.c

test_programs += tests/judge/test_power
tests_judge_test_power_SOURCES = tests/judge/test_power.c tests/judge/power.c tests/judge/power.h \
    tests/judge/dense.c tests/judge/dense.h

test_programs += tests/judge/test_drawn
tests_judge_test_drawn_SOURCES = tests/judge/test_drawn.c

test_programs += tests/judge/test_tiles
tests_judge_test_tiles_SOURCES = tests/judge/test_tiles.c

test_programs += tests/judge/test_verify
tests_judge_test_verify_SOURCES = tests/judge/test_verify.c

test_programs += tests/judge/test_mutations
tests_judge_test_mutations_SOURCES = tests/judge/test_mutations.c tests/mutations/expected.c \
    tests/mutations/expected.h tests/support/world.c tests/support/world.h $(undiagnosed)
tests_judge_test_mutations_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_judge_test_mutations_LDADD = $(mutated_libs)
tests_judge_test_mutations_LDFLAGS = $(mutated_ldflags) $(undiagnosed_ldflags)

long_programs += tests/judge/test_diagnosis
tests_judge_test_diagnosis_SOURCES = tests/judge/test_diagnosis.c tests/mutations/diagnoses.c \
    tests/mutations/diagnoses.h tests/mutations/expected.c tests/mutations/expected.h tests/support/world.c \
    tests/support/world.h
tests_judge_test_diagnosis_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_judge_test_diagnosis_LDADD = $(mutated_libs)
tests_judge_test_diagnosis_LDFLAGS = $(mutated_ldflags)

test_programs += tests/judge/test_mistakes
tests_judge_test_mistakes_SOURCES = tests/judge/test_mistakes.c tests/judge/dense.c tests/judge/dense.h \
    tests/judge/says.c tests/judge/says.h

test_programs += tests/judge/test_some_rows
tests_judge_test_some_rows_SOURCES = tests/judge/test_some_rows.c tests/judge/dense.c tests/judge/dense.h \
    tests/judge/says.c tests/judge/says.h

test_programs += tests/judge/test_some_heads
tests_judge_test_some_heads_SOURCES = tests/judge/test_some_heads.c tests/judge/dense.c tests/judge/dense.h \
    tests/judge/says.c tests/judge/says.h

test_programs += tests/judge/test_factors
tests_judge_test_factors_SOURCES = tests/judge/test_factors.c

test_programs += tests/judge/test_collective_numbers
tests_judge_test_collective_numbers_SOURCES = tests/judge/test_collective_numbers.c

test_programs += tests/judge/test_linear_sums
tests_judge_test_linear_sums_SOURCES = tests/judge/test_linear_sums.c

test_programs += tests/judge/test_rounding
tests_judge_test_rounding_SOURCES = tests/judge/test_rounding.c tests/support/world.c tests/support/world.h
tests_judge_test_rounding_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_judge_test_rounding_LDADD = $(mutated_libs)
tests_judge_test_rounding_LDFLAGS = $(mutated_ldflags)
long_scripts += tests/judge/test_without_amx.sh

test_programs += tests/judge/test_source
tests_judge_test_source_SOURCES = tests/judge/test_source.c

test_programs += tests/judge/test_amx
tests_judge_test_amx_SOURCES = tests/judge/test_amx.c

test_programs += tests/judge/test_expected
tests_judge_test_expected_SOURCES = tests/judge/test_expected.c tests/judge/dense.c tests/judge/dense.h

test_programs += tests/judge/test_online
tests_judge_test_online_SOURCES = tests/judge/test_online.c

test_programs += tests/judge/test_schedules
tests_judge_test_schedules_SOURCES = tests/judge/test_schedules.c
