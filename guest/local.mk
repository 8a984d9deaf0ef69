# SPDX-License-Identifier: Apache-2.0
# libcpattn-guest: a rank whose attention is the caller's.
noinst_LTLIBRARIES += guest/libguest.la
guest_libguest_la_SOURCES = \
    guest/cpattn_guest.h \
    guest/engine.c \
    guest/guest.c \
    guest/state.h \
    guest/tensors.c \
    $(judge_sources) \
    $(kernels_sources) \
    $(rank_sources) \
    $(transport_sources)
guest_libguest_la_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)
include_HEADERS += guest/cpattn_guest.h

lib_LTLIBRARIES += guest/libcpattn-guest.la
guest_libcpattn_guest_la_SOURCES = guest/no_gpu.c
guest_libcpattn_guest_la_LIBADD = guest/libguest.la plan/libplan.la common/libcommon.la \
    $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
guest_libcpattn_guest_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined \
    -version-info $(LIBCPATTN_GUEST_VERSION_INFO) \
    -Wl,--version-script=$(top_srcdir)/guest/libcpattn-guest.map
EXTRA_guest_libcpattn_guest_la_DEPENDENCIES = guest/libcpattn-guest.map
EXTRA_DIST += guest/libcpattn-guest.map
pkgconfig_DATA += guest/cpattn-guest.pc

# The same with the CUDA engine, which libcpattn-guest loads where a rank has a GPU. Without NCCL: a guest
# brings its own. Objects of nvcc are those of the rank program.
if CUDA
lib_LTLIBRARIES += guest/libcpattn-guest-cuda.la
guest_cuda_objects = $(patsubst %.cu,%.$(OBJEXT),$(filter %.cu,$(cuda_common_sources) \
    $(cuda_judge_sources) $(cuda_kernels_sources) $(cuda_rank_sources)))
guest_libcpattn_guest_cuda_la_SOURCES = \
    common/cuda/device_arena.c \
    common/cuda/queue.c \
    guest/gpu.c \
    guest/no_nccl.c \
    judge/cuda/passes.c \
    judge/cuda/tables.c \
    judge/cuda/verdict.c \
    judge/cuda/verify.c \
    judge/cuda/verify_memory.c \
    kernels/cuda/backend.c \
    kernels/cuda/cublaslt.c \
    kernels/cuda/intervals.c \
    kernels/cuda/sm90_tensor.c \
    kernels/cuda/worklist.c \
    kernels/cuda/worklist_backward.c \
    kernels/cuda/worklist_tail.c \
    rank/cuda/choice.c \
    rank/cuda/device.c \
    rank/cuda/engine.c \
    rank/cuda/events.c \
    rank/cuda/exchanges.c \
    rank/cuda/executor.c \
    rank/cuda/exploration.c \
    rank/cuda/given.c \
    rank/cuda/graph.c \
    rank/cuda/marks.c \
    rank/cuda/parcels.c \
    rank/cuda/plans.c \
    rank/cuda/position.c \
    rank/cuda/results_read.c \
    rank/cuda/stamps.c \
    rank/cuda/swap_nccl.c \
    rank/cuda/swap_staged.c \
    rank/cuda/timeline.c \
    rank/cuda/window.c \
    transport/agree.c \
    transport/peer.c \
    transport/peer_direct.c \
    transport/peer_exchange.c
guest_libcpattn_guest_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
guest_libcpattn_guest_cuda_la_LIBADD = $(guest_cuda_objects) guest/libguest.la plan/libplan.la \
    common/libcommon.la $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
guest_libcpattn_guest_cuda_la_DEPENDENCIES = $(guest_cuda_objects) guest/libguest.la \
    plan/libplan.la common/libcommon.la
guest_libcpattn_guest_cuda_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined -Wl,-z,defs \
    -version-info $(LIBCPATTN_GUEST_VERSION_INFO) \
    -Wl,--version-script=$(top_srcdir)/guest/libcpattn-guest.map
endif
