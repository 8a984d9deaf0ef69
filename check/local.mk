# SPDX-License-Identifier: Apache-2.0
# libcpattn-check: the judge as a library. Its cases are objects of libcpattn.
noinst_LTLIBRARIES += check/libcheck.la
check_libcheck_la_SOURCES = \
    check/bias.c \
    check/census.c \
    check/check.c \
    check/cpattn_check.h \
    check/device.c \
    check/device.h \
    check/diagnose.c \
    check/elements.c \
    check/errors.c \
    check/given.c \
    check/job.c \
    check/job_collective.c \
    check/job_judge.c \
    check/job_judge.h \
    check/job_linear.c \
    check/job_place.c \
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

# The part of libcpattn-check for GPU memory. libcpattn-check loads it when it gets GPU memory. The
# part contains the functions of the judge and of a check that it calls, so that neither library
# needs symbols of the other.
check_cuda_sources = \
    check/bias.c \
    check/cuda/judge.c \
    check/cuda/pack.h \
    check/rows.c \
    check/tensors.c \
    judge/chunk.c \
    judge/collective.c \
    judge/digest.c \
    judge/draw.c \
    judge/draw_avx2.c \
    judge/draw_avx512.c \
    judge/draw_plain.c \
    judge/dtype.c \
    judge/input_shape.c \
    judge/inputs.c \
    judge/linear_draw.c \
    judge/linear_triple.c \
    judge/linear_view.c \
    judge/mask.c \
    judge/rules.c \
    judge/source.c \
    judge/tally.c \
    judge/tiles.c \
    judge/totals.c \
    $(cuda_common_sources) \
    $(cuda_judge_c_sources)
EXTRA_DIST += check/cuda/pack.cu
if CUDA
lib_LTLIBRARIES += check/libcpattn-check-cuda.la
check_cuda_objects = check/cuda/pack.$(OBJEXT) \
    $(patsubst %.cu,%.$(OBJEXT),$(filter %.cu,$(cuda_judge_sources)))
check_libcpattn_check_cuda_la_SOURCES = $(check_cuda_sources)
check_libcpattn_check_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client $(CUDA_CPPFLAGS)
check_libcpattn_check_cuda_la_LIBADD = $(check_cuda_objects) plan/libplan.la common/libcommon.la \
    $(CUDA_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
check_libcpattn_check_cuda_la_DEPENDENCIES = $(check_cuda_objects) plan/libplan.la \
    common/libcommon.la
check_libcpattn_check_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -no-undefined \
    -Wl,-z,defs \
    -export-symbols-regex '^cpattn_check_cuda_table$$'
endif

# The Python package, which uses the libraries: pip install ./python.
EXTRA_DIST += python/pyproject.toml python/cpattn/__init__.py python/cpattn/_answers.py python/cpattn/_arrays.py \
    python/cpattn/_attend.py python/cpattn/_guest_memory.py python/cpattn/_library.py python/cpattn/_structs.py \
    python/cpattn/case.py python/cpattn/check.py python/cpattn/client.py \
    python/cpattn/guest.py python/cpattn/guests/__init__.py python/cpattn/job_check.py \
    python/cpattn/guests/torch_context_parallel.py python/cpattn/guests/torch_sdpa.py \
    python/cpattn/py.typed python/cpattn/pytest_plugin.py python/cpattn/_submit.py python/cpattn/_map.py \
    python/cpattn/_values.py \
    python/tests/test_check.py \
    python/tests/test_client.py python/tests/test_given.py python/tests/test_guest.py \
    python/tests/test_job_check.py python/tests/test_mistakes.py python/tests/test_values.py
