# SPDX-License-Identifier: Apache-2.0
# A kind of job that only tests have. Daemon and ranks are the real programs with other tables of
# kinds: the linker finds these sources before the tables in the libraries.
toy_spec = tests/kinds/toy_sum.c tests/kinds/toy_sum.h tests/kinds/toy_kinds.c

test_helpers += tests/kinds/toy_daemon
tests_kinds_toy_daemon_SOURCES = $(toy_spec) $(cpattnd_SOURCES)
tests_kinds_toy_daemon_LDADD = $(cpattnd_LDADD)

test_helpers += tests/kinds/toy_rank
tests_kinds_toy_rank_SOURCES = $(toy_spec) tests/kinds/toy_sum_rank.c tests/kinds/toy_rank_kinds.c rank/main.c
tests_kinds_toy_rank_LDADD = $(cpattn_rank_LDADD)

job_calls = tests/kinds/job_calls.c tests/kinds/job_calls.h $(daemon_fixture)

test_programs += tests/kinds/test_kinds
tests_kinds_test_kinds_SOURCES = tests/kinds/test_kinds.c $(job_calls)
tests_kinds_test_kinds_LDADD = $(daemon_fixture_libs)

test_programs += tests/kinds/test_kind_table
tests_kinds_test_kind_table_SOURCES = tests/kinds/test_kind_table.c $(toy_spec)

random_jobs = tests/kinds/random_jobs.c tests/kinds/random_jobs.h

test_programs += tests/kinds/test_kind_memory
tests_kinds_test_kind_memory_SOURCES = tests/kinds/test_kind_memory.c $(random_jobs)

# Random collectives and linear layers, on the real daemon.
test_programs += tests/kinds/test_random_jobs
tests_kinds_test_random_jobs_SOURCES = tests/kinds/test_random_jobs.c $(job_calls) \
    $(random_jobs)
tests_kinds_test_random_jobs_LDADD = $(daemon_fixture_libs)

# Collectives, on the real daemon.
test_programs += tests/kinds/test_collectives
tests_kinds_test_collectives_SOURCES = tests/kinds/test_collectives.c $(job_calls) \
    $(random_jobs)
tests_kinds_test_collectives_LDADD = $(daemon_fixture_libs)

# Linear layers, on the real daemon.
test_programs += tests/kinds/test_linears
tests_kinds_test_linears_SOURCES = tests/kinds/test_linears.c $(job_calls) \
    $(random_jobs)
tests_kinds_test_linears_LDADD = $(daemon_fixture_libs)

# The rules of a pool of workers, for collectives and linear layers.
test_programs += tests/kinds/test_workers
tests_kinds_test_workers_SOURCES = tests/kinds/test_workers.c $(job_calls)
tests_kinds_test_workers_LDADD = $(daemon_fixture_libs)

# A guest for collectives and linear layers, with and without mistakes.
test_helpers += tests/kinds/guest_kinds
tests_kinds_guest_kinds_SOURCES = tests/kinds/guest_kinds.c
tests_kinds_guest_kinds_CPPFLAGS = -I$(top_srcdir)/guest
tests_kinds_guest_kinds_LDADD = guest/libcpattn-guest.la
tests_kinds_guest_kinds_LDFLAGS = $(AM_LDFLAGS) -no-install
long_scripts += tests/kinds/test_kind_guests.sh

# A guest for attention with right results, which may write where it must not.
test_helpers += tests/kinds/guest_attention
tests_kinds_guest_attention_SOURCES = tests/kinds/guest_attention.c
tests_kinds_guest_attention_CPPFLAGS = -I$(top_srcdir)/guest
tests_kinds_guest_attention_LDADD = guest/libcpattn-guest.la $(MATH_LIBS)
tests_kinds_guest_attention_LDFLAGS = $(AM_LDFLAGS) -no-install
test_scripts += tests/kinds/test_untouched.sh

# A rank with a mistake in its plans: the client gets a diagnosis.
test_helpers += tests/kinds/wrong_rank
tests_kinds_wrong_rank_SOURCES = tests/kinds/wrong_rank.c
tests_kinds_wrong_rank_LDADD = $(cpattn_rank_LDADD)
tests_kinds_wrong_rank_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=collective_plan -Wl,--wrap=linear_plan
test_scripts += tests/kinds/test_kind_diagnosis.sh
test_scripts += tests/kinds/test_kind_hosts.sh
