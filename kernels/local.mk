# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = $(kernels_sources)
kernels_libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)

# The tests compile these files again, with mutations.
kernels_sources = \
    kernels/attention.h \
    kernels/backend.h \
    kernels/cpu/amx_tile.c \
    kernels/cpu/amx_tile.h \
    kernels/cpu/backend.c \
    kernels/cpu/backward.c \
    kernels/cpu/forward.c \
    kernels/cpu/gemm.h \
    kernels/cpu/linear.c \
    kernels/cpu/linear.h \
    kernels/cpu/reduce.c \
    kernels/cpu/reduce.h \
    kernels/cpu/rows.c \
    kernels/cpu/tile.c \
    kernels/cpu/tile.h \
    kernels/dtype.c \
    kernels/dtype.h \
    kernels/foreign.c \
    kernels/foreign.h \
    kernels/gemm.c \
    kernels/gemm.h \
    kernels/groups.c \
    kernels/groups.h \
    kernels/own.c \
    kernels/prepared.h \
    kernels/provider.h \
    kernels/rows.c \
    kernels/rows.h \
    kernels/vector.c \
    kernels/vector.h \
    kernels/vector_ops.h \
    kernels/vector_avx2.c \
    kernels/vector_avx512.c \
    kernels/vector_body.h \
    kernels/vector_plain.c \
    kernels/vector_variants.h

# The header for providers of kernels.
include_HEADERS += kernels/cpattn_provider.h
