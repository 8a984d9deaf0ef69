# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = $(kernels_sources)
kernels_libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)

# Compiled a second time, with mutations, for the tests.
kernels_sources =
