# SPDX-License-Identifier: Apache-2.0
# The parts of a rank on a GPU that replace those on the CPU. One file per line. The transport
# between devices is here, too, because only these ranks link it. The library for guests has these
# files, too.
cuda_engine_sources =
cuda_engine_sources += rank/cuda/choice.c
cuda_engine_sources += rank/cuda/choice.h
cuda_engine_sources += rank/cuda/device.c
cuda_engine_sources += rank/cuda/device.h
cuda_engine_sources += rank/cuda/engine.c
cuda_engine_sources += rank/cuda/engine.h
cuda_engine_sources += rank/cuda/engine_state.h
cuda_engine_sources += rank/cuda/events.c
cuda_engine_sources += rank/cuda/events.h
cuda_engine_sources += rank/cuda/exchanges.c
cuda_engine_sources += rank/cuda/execution.h
cuda_engine_sources += rank/cuda/executor.c
cuda_engine_sources += rank/cuda/executor.h
cuda_engine_sources += rank/cuda/exploration.c
cuda_engine_sources += rank/cuda/exploration.h
cuda_engine_sources += rank/cuda/given.c
cuda_engine_sources += rank/cuda/given.h
cuda_engine_sources += rank/cuda/graph.c
cuda_engine_sources += rank/cuda/graph.h
cuda_engine_sources += rank/cuda/marks.c
cuda_engine_sources += rank/cuda/marks.h
cuda_engine_sources += rank/cuda/parcels.c
cuda_engine_sources += rank/cuda/parcels.h
cuda_engine_sources += rank/cuda/plans.c
cuda_engine_sources += rank/cuda/position.c
cuda_engine_sources += rank/cuda/position.h
cuda_engine_sources += rank/cuda/results_read.c
cuda_engine_sources += rank/cuda/results_read.h
cuda_engine_sources += rank/cuda/stamps.c
cuda_engine_sources += rank/cuda/stamps.h
cuda_engine_sources += rank/cuda/swap_nccl.c
cuda_engine_sources += rank/cuda/swap_nccl.h
cuda_engine_sources += rank/cuda/swap_staged.c
cuda_engine_sources += rank/cuda/swap_staged.h
cuda_engine_sources += rank/cuda/timeline.c
cuda_engine_sources += rank/cuda/timeline.h
cuda_engine_sources += rank/cuda/window.c
cuda_engine_sources += rank/cuda/window.h
cuda_engine_sources += transport/agree.c
cuda_engine_sources += transport/agree.h
cuda_engine_sources += transport/driver.h
cuda_engine_sources += transport/peer.c
cuda_engine_sources += transport/peer.h
cuda_engine_sources += transport/peer_direct.c
cuda_engine_sources += transport/peer_direct.h
cuda_engine_sources += transport/peer_exchange.c
cuda_engine_sources += transport/peer_exchange.h
cuda_engine_sources += transport/peer_kernel.h
cuda_engine_sources += transport/stream_words.h
cuda_engine_sources += transport/strided.c
cuda_engine_sources += transport/strided.h

# The rank program also has the probe, NCCL, and CUDA sources.
cuda_rank_sources = $(cuda_engine_sources)
cuda_rank_sources += rank/cuda/probe.c
cuda_rank_sources += rank/cuda/probe.h
cuda_rank_sources += transport/nccl.c
cuda_rank_sources += transport/nccl.h
cuda_rank_sources += transport/peer_kernel.cu

# In link order. The daemon and the client link none of these.
cuda_rank_libs = rank/cuda/librankcuda.a $(rank_libs) judge/cuda/libjudgecuda.a judge/libjudge.a \
    kernels/cuda/libkernelscuda.a kernels/libkernels.a common/cuda/libcommoncuda.a plan/libplan.la common/libcommon.la \
    $(NCCL_LIBS) $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

if CUDA
noinst_LIBRARIES += rank/cuda/librankcuda.a
rank_cuda_librankcuda_a_SOURCES = $(cuda_rank_sources)
rank_cuda_librankcuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)

# The rank program.
pkglibexec_PROGRAMS += cpattn-rank-cuda
cpattn_rank_cuda_SOURCES = rank/cuda/main.c
cpattn_rank_cuda_LDADD = $(cuda_rank_libs)
endif
