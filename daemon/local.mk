# SPDX-License-Identifier: Apache-2.0
# The pure core: no clock, no system call. The simulator drives it.
noinst_LIBRARIES += daemon/libcore.a
daemon_libcore_a_SOURCES =

# The daemon, one file per line in cpattnd_SOURCES. Take the # away once daemon/main.c is there.
#sbin_PROGRAMS += cpattnd
#cpattnd_SOURCES = daemon/main.c
#cpattnd_LDADD = daemon/libcore.a $(base_libs) $(NNG_LIBS) $(EV_LIBS) $(PROTOBUF_C_LIBS) \
#    $(PTHREAD_LIBS) $(MATH_LIBS)
