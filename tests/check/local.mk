# SPDX-License-Identifier: Apache-2.0
long_programs += tests/check/test_check
tests_check_test_check_SOURCES = tests/check/test_check.c
tests_check_test_check_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_check_test_check_LDADD = check/libcheck.la $(LDADD)

test_programs += tests/check/test_check_arrays
tests_check_test_check_arrays_SOURCES = tests/check/test_check_arrays.c
tests_check_test_check_arrays_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_check_test_check_arrays_LDADD = check/libcheck.la $(LDADD)

test_programs += tests/check/test_check_device
tests_check_test_check_device_SOURCES = tests/check/test_check_device.c
tests_check_test_check_device_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_check_test_check_device_LDADD = check/libcheck.la $(LDADD)

# Checks of collectives and linear layers.
test_programs += tests/check/test_check_jobs
tests_check_test_check_jobs_SOURCES = tests/check/test_check_jobs.c
tests_check_test_check_jobs_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_check_test_check_jobs_LDADD = check/libcheck.la $(LDADD)

test_programs += tests/check/test_check_jobs_device
tests_check_test_check_jobs_device_SOURCES = tests/check/test_check_jobs_device.c
tests_check_test_check_jobs_device_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_check_test_check_jobs_device_LDADD = check/libcheck.la $(LDADD)
