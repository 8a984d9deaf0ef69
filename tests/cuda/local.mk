# SPDX-License-Identifier: Apache-2.0
# Tests on a device. Each program ends with status 77 where there is none, which `make check` reports as
# skipped. They use no library of which a bare GPU node has none:
#     cuda_test_programs += tests/cuda/test_thing
#     tests_cuda_test_thing_SOURCES = tests/cuda/test_thing.c
#     tests_cuda_test_thing_CPPFLAGS = $(cuda_test_cppflags)
#     tests_cuda_test_thing_LDADD = $(cuda_test_libs)
# Outside the conditional their sources would be asked of a build without CUDA.
cuda_test_programs =
cuda_test_cppflags = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
cuda_test_libs = kernels/cuda/libkernelscuda.a kernels/libkernels.a plan/libplan.la common/libcommon.la \
    $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

if CUDA
check_PROGRAMS += $(cuda_test_programs)
TESTS += $(cuda_test_programs)
endif
