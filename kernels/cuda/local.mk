# SPDX-License-Identifier: Apache-2.0
# The CUDA backend. One file per line, with the headers, so that `make dist` has them. The library
# for guests has the C files, too.
cuda_kernels_c_sources =
cuda_kernels_c_sources += kernels/cuda/backend.c
cuda_kernels_c_sources += kernels/cuda/cap_series.c
cuda_kernels_c_sources += kernels/cuda/cublaslt.c
cuda_kernels_c_sources += kernels/cuda/intervals.c
cuda_kernels_c_sources += kernels/cuda/sm90_tensor.c
cuda_kernels_c_sources += kernels/cuda/worklist.c
cuda_kernels_c_sources += kernels/cuda/worklist_backward.c
cuda_kernels_c_sources += kernels/cuda/worklist_tail.c

cuda_kernels_sources = $(cuda_kernels_c_sources)
cuda_kernels_sources += kernels/cuda/backend.h
cuda_kernels_sources += kernels/cuda/backward_work.cuh
cuda_kernels_sources += kernels/cuda/cap_series.h
cuda_kernels_sources += kernels/cuda/clocks.h
cuda_kernels_sources += kernels/cuda/cublaslt.h
cuda_kernels_sources += kernels/cuda/delay.cu
cuda_kernels_sources += kernels/cuda/delay_cuda.h
cuda_kernels_sources += kernels/cuda/stamp.cu
cuda_kernels_sources += kernels/cuda/stamp_cuda.h
cuda_kernels_sources += kernels/cuda/dtype.cuh
cuda_kernels_sources += kernels/cuda/elementwise.cu
cuda_kernels_sources += kernels/cuda/forward_work.h
cuda_kernels_sources += kernels/cuda/internal.h
cuda_kernels_sources += kernels/cuda/intervals.h
cuda_kernels_sources += kernels/cuda/linear.cu
cuda_kernels_sources += kernels/cuda/linear_cuda.h
cuda_kernels_sources += kernels/cuda/mma.cuh
cuda_kernels_sources += kernels/cuda/packed.cu
cuda_kernels_sources += kernels/cuda/packed_cuda.h
cuda_kernels_sources += kernels/cuda/reduce.cu
cuda_kernels_sources += kernels/cuda/reduce_cuda.h
cuda_kernels_sources += kernels/cuda/regions.cu
cuda_kernels_sources += kernels/cuda/regions_cuda.h
cuda_kernels_sources += kernels/cuda/rows.cu
cuda_kernels_sources += kernels/cuda/rows_table.cuh
cuda_kernels_sources += kernels/cuda/sm90.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward.h
cuda_kernels_sources += kernels/cuda/sm90_backward_add.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_bias.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_instances.h
cuda_kernels_sources += kernels/cuda/sm90_backward_kernel.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_load.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_parts.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_scores.cuh
cuda_kernels_sources += kernels/cuda/sm90_backward_work.cuh
cuda_kernels_sources += kernels/cuda/sm90_bias.cuh
cuda_kernels_sources += kernels/cuda/sm90_cap.cuh
cuda_kernels_sources += kernels/cuda/sm90_forward.h
cuda_kernels_sources += kernels/cuda/sm90_forward_features.cuh
cuda_kernels_sources += kernels/cuda/sm90_forward_kernel.cuh
cuda_kernels_sources += kernels/cuda/sm90_forward_load.cuh
cuda_kernels_sources += kernels/cuda/sm90_forward_softmax.cuh
cuda_kernels_sources += kernels/cuda/sm90_forward_state.cuh
cuda_kernels_sources += kernels/cuda/sm90_tensor.h
cuda_kernels_sources += kernels/cuda/sm90_wide_add.cuh
cuda_kernels_sources += kernels/cuda/sm90_wide_general.cuh
cuda_kernels_sources += kernels/cuda/sm90_wide_kernel.cuh
cuda_kernels_sources += kernels/cuda/sm90_wide_load.cuh
cuda_kernels_sources += kernels/cuda/smxx_backward.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_bf16.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_fp16.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_general_bf16.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_general_fp16.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_kernel.cuh
cuda_kernels_sources += kernels/cuda/smxx_backward_plain.cu
cuda_kernels_sources += kernels/cuda/smxx_backward_tiles.cuh
cuda_kernels_sources += kernels/cuda/smxx_forward.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_128.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_192_128.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_256.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_64.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_fp32.cu
cuda_kernels_sources += kernels/cuda/smxx_forward_kernel.cuh
cuda_kernels_sources += kernels/cuda/smxx_forward_loads.cuh
cuda_kernels_sources += kernels/cuda/worklist.h
cuda_kernels_sources += kernels/cuda/worklist_backward.h
cuda_kernels_sources += kernels/cuda/worklist_tail.h

# Kernels only for sm_90a. Code that calls them is compiled only if CPATTN_SM90 is defined.
sm90_kernels_sources =
sm90_kernels_sources += kernels/cuda/sm90_backward.cu
sm90_kernels_sources += kernels/cuda/sm90_backward_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_backward_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_biased_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_biased_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_capped_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_capped_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_features_128.cu
sm90_kernels_sources += kernels/cuda/sm90_features_192_128.cu
sm90_kernels_sources += kernels/cuda/sm90_features_256.cu
sm90_kernels_sources += kernels/cuda/sm90_features_64.cu
sm90_kernels_sources += kernels/cuda/sm90_forward.cu
sm90_kernels_sources += kernels/cuda/sm90_forward_128.cu
sm90_kernels_sources += kernels/cuda/sm90_forward_192_128.cu
sm90_kernels_sources += kernels/cuda/sm90_forward_256.cu
sm90_kernels_sources += kernels/cuda/sm90_forward_64.cu
sm90_kernels_sources += kernels/cuda/sm90_forward_96.cu
sm90_kernels_sources += kernels/cuda/sm90_general_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_general_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_biased_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_biased_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_capped_bf16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_capped_fp16.cu
sm90_kernels_sources += kernels/cuda/sm90_wide_fp16.cu

if CUDA_SM90
cuda_kernels_sources += $(sm90_kernels_sources)
endif

if CUDA
cuda_is_built = yes
noinst_LIBRARIES += kernels/cuda/libkernelscuda.a
kernels_cuda_libkernelscuda_a_SOURCES = $(cuda_kernels_sources)
kernels_cuda_libkernelscuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
endif

# nvcc compiles each file separately, so that `make -j` compiles several at once. libtool cannot run
# nvcc. The same objects go into programs and into the libraries for checks and guests on GPUs.
SUFFIXES += .cu
cuda_gencode = $(if $(filter sm90_%,$(*F)),$(CUDA_GENCODE_SM90),$(CUDA_GENCODE))
.cu.$(OBJEXT):
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(NVCC) -ccbin $(CUDA_HOST_CXX) $(cuda_gencode) -std=c++17 $(AM_CPPFLAGS) \
	    $(CUDA_CPPFLAGS) -Xcompiler -fPIE,-fvisibility=hidden,-Wall $(CUDA_WERROR) $(NVCCFLAGS) \
	    -MD -MP -MF $(@D)/$(*F).nvcc.d -MT $@ -c -o $@ $<
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =

nvcc_dependencies = judge/cuda/*.nvcc.d kernels/cuda/*.nvcc.d check/cuda/*.nvcc.d tests/cuda/*.nvcc.d bench/cuda/*.nvcc.d transport/*.nvcc.d
CLEANFILES += $(nvcc_dependencies)
-include $(wildcard $(nvcc_dependencies))
