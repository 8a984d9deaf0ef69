# SPDX-License-Identifier: Apache-2.0
test_programs += tests/submit/test_matrix
tests_submit_test_matrix_SOURCES = tests/submit/test_matrix.c
tests_submit_test_matrix_LDADD = tests/support/libtesting.a $(submit_libs) $(third_party_libs)

test_programs += tests/submit/test_matrix_rules
tests_submit_test_matrix_rules_SOURCES = tests/submit/test_matrix_rules.c
tests_submit_test_matrix_rules_LDADD = tests/support/libtesting.a $(submit_libs) $(third_party_libs)
EXTRA_DIST += tests/submit/transformer_engine.txt

test_programs += tests/submit/test_timeline
tests_submit_test_timeline_SOURCES = tests/submit/test_timeline.c
tests_submit_test_timeline_CPPFLAGS = $(AM_CPPFLAGS) $(XML_CFLAGS)
tests_submit_test_timeline_LDADD = tests/support/libtesting.a $(submit_libs) $(third_party_libs)

# The command on top of a fake client library, for answers that a sound daemon never gives.
test_helpers += tests/submit/submit_fake
tests_submit_submit_fake_SOURCES = tests/submit/fake_client.c tests/submit/fake_client.h \
    tests/submit/fake_status.c client/submit/main.c
tests_submit_submit_fake_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_submit_submit_fake_LDADD = client/libsubmit.a yaml/libyamltree.la plan/libplan.la common/libcommon.la \
    $(third_party_libs)
test_scripts += tests/submit/test_bench_runs.sh
test_scripts += tests/submit/test_tutorial.sh
test_scripts += tests/submit/test_files.sh
test_scripts += tests/submit/test_fail_page.sh
test_scripts += tests/submit/test_matrix_daemons.sh
test_scripts += tests/submit/test_matrix_runs.sh
test_scripts += tests/submit/test_report.sh
test_scripts += tests/submit/test_submit.sh
long_scripts += tests/submit/test_submit_daemon.sh
test_scripts += tests/submit/test_submit_remote.sh
test_scripts += tests/submit/test_completion.sh
test_scripts += tests/submit/test_full.sh
test_scripts += tests/submit/test_random_matrix.sh
long_scripts += tests/submit/test_transformer_engine.sh

test_programs += tests/submit/test_words
tests_submit_test_words_SOURCES = tests/submit/test_words.c
tests_submit_test_words_LDADD = tests/support/libtesting.a $(submit_libs) $(third_party_libs)

test_programs += tests/submit/test_safetensors
tests_submit_test_safetensors_SOURCES = tests/submit/test_safetensors.c
tests_submit_test_safetensors_LDADD = tests/support/libtesting.a $(submit_libs) $(third_party_libs)

# A rank program with a fault.
test_helpers += tests/submit/wrong_rank
tests_submit_wrong_rank_SOURCES = tests/submit/wrong_rank.c
tests_submit_wrong_rank_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_submit_wrong_rank_LDADD = $(mutated_libs)
tests_submit_wrong_rank_LDFLAGS = $(mutated_ldflags)
test_scripts += tests/submit/test_submit_tensors.sh
test_scripts += tests/submit/test_trace.sh
