# SPDX-License-Identifier: Apache-2.0
# The pure core: no clock, no system call. The simulator drives it.
noinst_LIBRARIES += daemon/libcore.a
daemon_libcore_a_SOURCES = \
    daemon/core/actions.c \
    daemon/core/actions.h \
    daemon/core/check.c \
    daemon/core/core.c \
    daemon/core/core.h \
    daemon/core/ids.c \
    daemon/core/ids.h \
    daemon/core/job.c \
    daemon/core/job.h \
    daemon/core/poison.c \
    daemon/core/poison.h \
    daemon/core/pool.c \
    daemon/core/pool.h \
    daemon/core/schedule.c \
    daemon/core/schedule.h \
    daemon/core/state.h \
    daemon/core/timers.c \
    daemon/core/timers.h

# The daemon, one file per line in cpattnd_SOURCES. Take the # away once daemon/main.c is there.
#sbin_PROGRAMS += cpattnd
#cpattnd_SOURCES = daemon/main.c
#cpattnd_LDADD = daemon/libcore.a $(base_libs) $(NNG_LIBS) $(EV_LIBS) $(PROTOBUF_C_LIBS) \
#    $(PTHREAD_LIBS) $(MATH_LIBS)
