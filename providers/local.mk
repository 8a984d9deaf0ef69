# SPDX-License-Identifier: Apache-2.0
# The project's providers of attention kernels: shared objects that ranks load.
EXTRA_DIST += providers/cudnn.cpp providers/cudnn_graph.h

# The provider loads cuDNN at run time; the build needs only its headers.
if CUDNN
providerdir = $(libdir)/cpattn
provider_DATA = providers/cudnn.so
CLEANFILES += providers/cudnn.so
providers/cudnn.so: providers/cudnn.cpp providers/cudnn_graph.h kernels/cpattn_provider.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CXX)$(CUDA_HOST_CXX) -std=c++17 -O2 -fPIC -fvisibility=hidden -shared -Wall -DNDEBUG \
	    -DNV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING -I$(top_srcdir) $(CUDNN_CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -o $@ $(top_srcdir)/providers/cudnn.cpp $(CUDA_LIBS)
AM_V_CXX = $(am__v_CXX_@AM_V@)
am__v_CXX_ = $(am__v_CXX_@AM_DEFAULT_V@)
am__v_CXX_0 = @echo "  CXX     " $@;
am__v_CXX_1 =
endif
