# SPDX-License-Identifier: Apache-2.0
# libcpattn-check: the judge as a library. Its cases are those of libcpattn.
noinst_LTLIBRARIES += check/libcheck.la
check_libcheck_la_SOURCES = \
    check/bias.c \
    check/census.c \
    check/check.c \
    check/cpattn_check.h \
    check/diagnose.c \
    check/rows.c \
    check/state.h \
    check/sums.c \
    check/tensors.c \
    check/verdict.c \
    check/judge.c \
    client/figures.c \
    client/figures.h \
    $(judge_sources)
check_libcheck_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client $(BLAS_CFLAGS)
include_HEADERS += check/cpattn_check.h

lib_LTLIBRARIES += check/libcpattn-check.la
check_libcpattn_check_la_SOURCES =
check_libcpattn_check_la_LIBADD = check/libcheck.la client/libcpattn.la plan/libplan.la \
    common/libcommon.la $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
check_libcpattn_check_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined \
    -version-info $(LIBCPATTN_CHECK_VERSION_INFO) \
    -Wl,--version-script=$(top_srcdir)/check/libcpattn-check.map
EXTRA_check_libcpattn_check_la_DEPENDENCIES = check/libcpattn-check.map
EXTRA_DIST += check/libcpattn-check.map
pkgconfig_DATA += check/cpattn-check.pc

# The Python package over the libraries: pip install ./python.
EXTRA_DIST += python/pyproject.toml python/cpattn/__init__.py python/cpattn/_arrays.py \
    python/cpattn/_library.py python/cpattn/case.py python/cpattn/check.py python/cpattn/guest.py \
    python/cpattn/py.typed \
    python/cpattn/pytest_plugin.py python/tests/test_check.py
