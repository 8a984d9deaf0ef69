# SPDX-License-Identifier: Apache-2.0
# The judge on a GPU. One file per line. The libraries for checks and guests have the C files, too.
cuda_judge_c_sources =
cuda_judge_c_sources += judge/cuda/passes.c
cuda_judge_c_sources += judge/cuda/tables.c
cuda_judge_c_sources += judge/cuda/verdict.c
cuda_judge_c_sources += judge/cuda/verify.c
cuda_judge_c_sources += judge/cuda/verify_memory.c

cuda_judge_sources = $(cuda_judge_c_sources)
cuda_judge_sources += judge/cuda/attend.cuh
cuda_judge_sources += judge/cuda/collective.cu
cuda_judge_sources += judge/cuda/collective_cuda.h
cuda_judge_sources += judge/cuda/compare.cu
cuda_judge_sources += judge/cuda/compare_cuda.h
cuda_judge_sources += judge/cuda/digest.cu
cuda_judge_sources += judge/cuda/digest_cuda.h
cuda_judge_sources += judge/cuda/dmma.cuh
cuda_judge_sources += judge/cuda/draw.cuh
cuda_judge_sources += judge/cuda/dtype.cuh
cuda_judge_sources += judge/cuda/element.cuh
cuda_judge_sources += judge/cuda/hmma.cuh
cuda_judge_sources += judge/cuda/inputs.cu
cuda_judge_sources += judge/cuda/inputs_cuda.h
cuda_judge_sources += judge/cuda/linear.cu
cuda_judge_sources += judge/cuda/linear_cuda.h
cuda_judge_sources += judge/cuda/linear_drawn.cuh
cuda_judge_sources += judge/cuda/linear_parts.cuh
cuda_judge_sources += judge/cuda/padding.cu
cuda_judge_sources += judge/cuda/padding_cuda.h
cuda_judge_sources += judge/cuda/reference16.cu
cuda_judge_sources += judge/cuda/reference16.cuh
cuda_judge_sources += judge/cuda/reference16.h
cuda_judge_sources += judge/cuda/reference16_bf16.cu
cuda_judge_sources += judge/cuda/reference16_fp16.cu
cuda_judge_sources += judge/cuda/reference16_weights.cuh
cuda_judge_sources += judge/cuda/reference32.cu
cuda_judge_sources += judge/cuda/reference32.h
cuda_judge_sources += judge/cuda/reference64.cu
cuda_judge_sources += judge/cuda/reference64.h
cuda_judge_sources += judge/cuda/reference_cuda.h
cuda_judge_sources += judge/cuda/reference_rows.cu
cuda_judge_sources += judge/cuda/tables.h
cuda_judge_sources += judge/cuda/verification.h
cuda_judge_sources += judge/cuda/verify.h
cuda_judge_sources += judge/cuda/verify_state.h

if CUDA
noinst_LIBRARIES += judge/cuda/libjudgecuda.a
judge_cuda_libjudgecuda_a_SOURCES = $(cuda_judge_sources)
judge_cuda_libjudgecuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
endif
