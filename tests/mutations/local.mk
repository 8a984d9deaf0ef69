# SPDX-License-Identifier: Apache-2.0
# The same sources with the deliberate errors of common/mutation.h compiled in, and with the errors
# of plans: the linker replaces plan_create() by a function that applies them.
check_LIBRARIES += tests/mutations/libmutated.a
tests_mutations_libmutated_a_SOURCES = \
    tests/mutations/changes.h \
    tests/mutations/edit.c \
    tests/mutations/edit.h \
    tests/mutations/extras.c \
    tests/mutations/messages.c \
    tests/mutations/mutations.c \
    tests/mutations/mutations.h \
    tests/mutations/rectangles.c \
    tests/mutations/steps.c \
    tests/mutations/table.c \
    tests/mutations/waits.c \
    $(judge_sources) $(kernels_sources) $(transport_sources) $(rank_sources)
tests_mutations_libmutated_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS) -DCPATTN_MUTATIONS
mutated_libs = tests/support/libtesting.a tests/mutations/libmutated.a $(base_libs) $(third_party_libs)
mutated_ldflags = $(AM_LDFLAGS) -Wl,--wrap=plan_create
undiagnosed = tests/mutations/undiagnosed.c
undiagnosed_ldflags = -Wl,--wrap=job_diagnose
