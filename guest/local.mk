# SPDX-License-Identifier: Apache-2.0
# libcpattn-guest: a rank that runs the caller's attention, collectives or linear layers.
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

# The same with the CUDA engine. libcpattn-guest loads it if the rank has a GPU. It has no NCCL; a
# guest brings its own. The objects of nvcc are those of the rank program.
if CUDA
lib_LTLIBRARIES += guest/libcpattn-guest-cuda.la
guest_cuda_objects = $(patsubst %.cu,%.$(OBJEXT),$(filter %.cu,$(cuda_common_sources) \
    $(cuda_judge_sources) $(cuda_kernels_sources) $(cuda_rank_sources)))
guest_libcpattn_guest_cuda_la_SOURCES = \
    guest/gpu.c \
    guest/no_nccl.c \
    $(cuda_common_sources) \
    $(cuda_engine_sources) \
    $(cuda_judge_c_sources) \
    $(cuda_kernels_c_sources)
guest_libcpattn_guest_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
guest_libcpattn_guest_cuda_la_LIBADD = $(guest_cuda_objects) guest/libguest.la plan/libplan.la \
    common/libcommon.la $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
guest_libcpattn_guest_cuda_la_DEPENDENCIES = $(guest_cuda_objects) guest/libguest.la \
    plan/libplan.la common/libcommon.la
guest_libcpattn_guest_cuda_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined -Wl,-z,defs \
    -version-info $(LIBCPATTN_GUEST_VERSION_INFO) \
    -Wl,--version-script=$(top_srcdir)/guest/libcpattn-guest.map
endif
