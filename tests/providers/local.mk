# SPDX-License-Identifier: Apache-2.0
# Providers: a toy, and variants of it with one fault each.
toys = tests/providers/toy.la tests/providers/toy_merges.la tests/providers/toy_scale.la \
    tests/providers/toy_crashes.la tests/providers/toy_fails.la \
    tests/providers/toy_causal.la tests/providers/toy_moods.la \
    tests/providers/toy_outside.la tests/providers/toy_packed.la tests/providers/toy_input.la
toy_ldflags = -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += $(toys)
tests_providers_toy_la_SOURCES = tests/providers/toy.c
tests_providers_toy_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_merges_la_SOURCES = tests/providers/toy.c
tests_providers_toy_merges_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_MERGES
tests_providers_toy_merges_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_merges_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_scale_la_SOURCES = tests/providers/toy.c
tests_providers_toy_scale_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_WRONG_SCALE
tests_providers_toy_scale_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_scale_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_crashes_la_SOURCES = tests/providers/toy.c
tests_providers_toy_crashes_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_CRASHES
tests_providers_toy_crashes_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_crashes_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_fails_la_SOURCES = tests/providers/toy.c
tests_providers_toy_fails_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_FAILS
tests_providers_toy_fails_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_fails_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_causal_la_SOURCES = tests/providers/toy.c
tests_providers_toy_causal_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_CAUSAL_ONLY
tests_providers_toy_causal_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_causal_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_moods_la_SOURCES = tests/providers/toy.c
tests_providers_toy_moods_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_MOODS
tests_providers_toy_moods_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_moods_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_outside_la_SOURCES = tests/providers/toy.c
tests_providers_toy_outside_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_MERGES -DTOY_OUTSIDE
tests_providers_toy_outside_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_outside_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_packed_la_SOURCES = tests/providers/toy.c
tests_providers_toy_packed_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_OUTSIDE
tests_providers_toy_packed_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_packed_la_LIBADD = $(MATH_LIBS)
tests_providers_toy_input_la_SOURCES = tests/providers/toy.c
tests_providers_toy_input_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_INPUT
tests_providers_toy_input_la_LDFLAGS = $(toy_ldflags)
tests_providers_toy_input_la_LIBADD = $(MATH_LIBS)
test_scripts += tests/providers/test_provider.sh
