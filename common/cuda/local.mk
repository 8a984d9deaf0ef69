# SPDX-License-Identifier: Apache-2.0
# Code that the kernels, the judge and the ranks on GPUs share. One file per line.
cuda_common_sources =
cuda_common_sources += common/cuda/device_arena.c
cuda_common_sources += common/cuda/device_arena.h
cuda_common_sources += common/cuda/queue.c
cuda_common_sources += common/cuda/queue.h
cuda_common_sources += common/cuda/runs.cuh

if CUDA
noinst_LIBRARIES += common/cuda/libcommoncuda.a
common_cuda_libcommoncuda_a_SOURCES = $(cuda_common_sources)
common_cuda_libcommoncuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
endif
