# SPDX-License-Identifier: Apache-2.0
# Code that several tests share.
check_LIBRARIES += tests/support/libtesting.a
tests_support_libtesting_a_SOURCES = tests/support/runner.c tests/support/runner.h \
    tests/support/cases.c tests/support/cases.h tests/support/definition.c tests/support/definition.h \
    tests/support/generate.c tests/support/generate.h tests/support/plans.c tests/support/plans.h \
    tests/support/symbolic.c tests/support/symbolic.h tests/support/symbols.c tests/support/symbols.h \
    tests/support/symbols_case.c tests/support/part.c tests/support/part.h \
    tests/support/children.c tests/support/children.h \
    tests/support/figures.c tests/support/figures.h tests/support/port.c tests/support/port.h \
    tests/support/splitmix.h \
    tests/support/trouble.c tests/support/trouble.h
EXTRA_DIST += tests/support/run_program tests/support/lsan.supp tests/support/tsan.supp

wire_samples = tests/support/wire_samples.c tests/support/wire_samples.h

# Reads values from JSON and XML, for tests that are scripts.
test_helpers += tests/support/peek
tests_support_peek_SOURCES = tests/support/peek.c
tests_support_peek_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(XML_CFLAGS)
tests_support_peek_LDADD = $(JANSSON_LIBS) $(XML_LIBS)
EXTRA_DIST += tests/support/tap.sh tests/support/daemon.sh tests/support/python.sh
