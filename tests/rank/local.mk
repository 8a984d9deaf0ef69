# SPDX-License-Identifier: Apache-2.0
test_programs += tests/rank/test_transport
tests_rank_test_transport_SOURCES = tests/rank/test_transport.c

test_programs += tests/rank/test_strided
tests_rank_test_strided_SOURCES = tests/rank/test_strided.c transport/strided.c transport/strided.h

# Whole cases over a transport of the tests.
test_programs += tests/rank/test_toy_transport
tests_rank_test_toy_transport_SOURCES = tests/rank/test_toy_transport.c tests/rank/toy_transport.c \
    tests/rank/toy_transport.h tests/support/world.c tests/support/world.h

test_programs += tests/rank/test_executor
tests_rank_test_executor_SOURCES = tests/rank/test_executor.c tests/support/generate.c \
    tests/support/generate.h

test_programs += tests/rank/test_rank_parts
tests_rank_test_rank_parts_SOURCES = tests/rank/test_rank_parts.c tests/support/generate.c \
    tests/support/world.c tests/support/world.h \
    tests/support/generate.h

long_programs += tests/rank/test_rank
tests_rank_test_rank_SOURCES = tests/rank/test_rank.c tests/support/generate.c tests/support/generate.h \
    tests/support/world.c \
    tests/support/world.h

test_programs += tests/rank/test_guest_engine
tests_rank_test_guest_engine_SOURCES = tests/rank/test_guest_engine.c guest/engine.c guest/guest.c \
    guest/tensors.c

test_programs += tests/rank/test_rank_process
tests_rank_test_rank_process_SOURCES = tests/rank/test_rank_process.c
random_cases = tests/rank/random_cases.c tests/rank/random_cases.h \
    tests/support/world.c tests/support/world.h

long_programs += tests/rank/test_random_cases
tests_rank_test_random_cases_SOURCES = tests/rank/test_random_cases.c $(random_cases)

test_programs += tests/rank/test_minimize
tests_rank_test_minimize_SOURCES = tests/rank/test_minimize.c $(random_cases) $(undiagnosed)
tests_rank_test_minimize_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_rank_test_minimize_LDADD = $(mutated_libs)
tests_rank_test_minimize_LDFLAGS = $(mutated_ldflags) $(undiagnosed_ldflags)

test_programs += tests/rank/test_waits
tests_rank_test_waits_SOURCES = tests/rank/test_waits.c tests/support/world.c tests/support/world.h
tests_rank_test_waits_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_rank_test_waits_LDADD = $(mutated_libs)
tests_rank_test_waits_LDFLAGS = $(mutated_ldflags)

test_programs += tests/rank/test_collective
tests_rank_test_collective_SOURCES = \
    tests/rank/collective_scene.c \
    tests/rank/collective_scene.h \
    tests/rank/plans_execute.c \
    tests/rank/plans_execute.h \
    tests/rank/test_collective.c
tests_rank_test_collective_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=layout_segments

test_programs += tests/rank/test_collective_specials
tests_rank_test_collective_specials_SOURCES = \
    tests/rank/collective_scene.c \
    tests/rank/collective_scene.h \
    tests/rank/plans_execute.c \
    tests/rank/plans_execute.h \
    tests/rank/test_collective_specials.c

test_programs += tests/rank/test_collective_mistakes
tests_rank_test_collective_mistakes_SOURCES = \
    tests/rank/collective_scene.c \
    tests/rank/collective_scene.h \
    tests/rank/plans_execute.c \
    tests/rank/plans_execute.h \
    tests/rank/test_collective_mistakes.c

test_programs += tests/rank/test_linear
tests_rank_test_linear_SOURCES = tests/rank/test_linear.c tests/rank/plans_execute.c tests/rank/plans_execute.h
