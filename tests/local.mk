# SPDX-License-Identifier: Apache-2.0
# A test program has two lines in the local.mk of the folder of the part that it tests:
#     test_programs += tests/plan/test_thing
#     tests_plan_test_thing_SOURCES = tests/plan/test_thing.c
# By default it links with LDADD below. To link with $(mutated_libs) and $(mutated_ldflags) instead,
# set its _LDADD and _LDFLAGS.
# A fuzz target has its lines in tests/fuzz/local.mk, with fuzz_programs and _LDADD = $(fuzz_libs).
# `make check` replays the files of tests/fuzz/corpus/NAME.
# Long tests are in long_programs or long_scripts instead; they start first.
test_programs =
test_scripts =
long_programs =
long_scripts =
test_helpers =
fuzz_programs =
check_LTLIBRARIES =

check_PROGRAMS += $(long_programs) $(test_programs) $(test_helpers) $(fuzz_programs)
EXTRA_DIST += $(long_scripts) $(test_scripts)

TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/support/run_program
AM_TESTS_ENVIRONMENT = \
    CK_TAP_LOG_FILE_NAME=-; export CK_TAP_LOG_FILE_NAME; \
    CK_VERBOSITY=silent; export CK_VERBOSITY; \
    CK_TIMEOUT_MULTIPLIER=$(TEST_TIMEOUT_MULTIPLIER); export CK_TIMEOUT_MULTIPLIER; \
    UBSAN_OPTIONS=print_stacktrace=1; export UBSAN_OPTIONS; \
    LSAN_OPTIONS=suppressions='$(abs_top_srcdir)/tests/support/lsan.supp':print_suppressions=0; export LSAN_OPTIONS; \
    TSAN_OPTIONS=suppressions='$(abs_top_srcdir)/tests/support/tsan.supp'; export TSAN_OPTIONS; \
    OPENBLAS_NUM_THREADS=1; export OPENBLAS_NUM_THREADS; \
    top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
    top_builddir='$(abs_top_builddir)'; export top_builddir;

third_party_libs = $(NNG_LIBS) $(EV_LIBS) $(PROTOBUF_C_LIBS) $(BLAS_LIBS) $(YAML_LIBS) \
    $(JANSSON_LIBS) $(MXML_LIBS) $(XML_LIBS) $(SMARTCOLS_LIBS) $(CURSES_LIBS) $(CHECK_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

# The default libraries of a test program.
LDADD = tests/support/libtesting.a $(rank_libs) daemon/libcore.a client/libclient.la \
    yaml/libyamltree.la $(base_libs) $(third_party_libs)

# A fuzz target reads its corpus in `make check`. With --enable-fuzz, libFuzzer runs it instead.
if FUZZ
fuzz_libs = $(FUZZ_ENGINE) $(LDADD)
TESTS = $(long_scripts) $(long_programs) $(test_programs) $(test_scripts)
else
check_LIBRARIES += tests/fuzz/libreplay.a
tests_fuzz_libreplay_a_SOURCES = tests/fuzz/fuzz_replay.c
fuzz_libs = tests/fuzz/libreplay.a $(LDADD)
TESTS = $(long_scripts) $(long_programs) $(test_programs) $(fuzz_programs) $(test_scripts)
endif

# ---- the tests: a folder for each part -----------------------------------------------------------

include $(top_srcdir)/tests/support/local.mk
include $(top_srcdir)/tests/mutations/local.mk
include $(top_srcdir)/tests/common/local.mk
include $(top_srcdir)/tests/plan/local.mk
include $(top_srcdir)/tests/proto/local.mk
include $(top_srcdir)/tests/kernels/local.mk
include $(top_srcdir)/tests/providers/local.mk
include $(top_srcdir)/tests/judge/local.mk
include $(top_srcdir)/tests/rank/local.mk
include $(top_srcdir)/tests/core/local.mk
include $(top_srcdir)/tests/net/local.mk
include $(top_srcdir)/tests/daemon/local.mk
include $(top_srcdir)/tests/nodes/local.mk
include $(top_srcdir)/tests/kinds/local.mk
include $(top_srcdir)/tests/client/local.mk
include $(top_srcdir)/tests/submit/local.mk
include $(top_srcdir)/tests/check/local.mk
include $(top_srcdir)/tests/python/local.mk
include $(top_srcdir)/tests/fuzz/local.mk
include $(top_srcdir)/tests/tree/local.mk
