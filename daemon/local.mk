# SPDX-License-Identifier: Apache-2.0
# The pure core: no clock, no system call. The simulator drives it.
noinst_LIBRARIES += daemon/libcore.a
daemon_libcore_a_SOURCES = \
    daemon/core/actions.c \
    daemon/core/actions.h \
    daemon/core/check.c \
    daemon/core/core.c \
    daemon/core/core.h \
    daemon/core/deadline.c \
    daemon/core/deadline.h \
    daemon/core/failures.c \
    daemon/core/failures.h \
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
    daemon/core/stuck.c \
    daemon/core/stuck.h \
    daemon/core/timers.c \
    daemon/core/timers.h \
    daemon/core/twin.c \
    daemon/core/twin.h \
    daemon/core/users.c \
    daemon/core/users.h

# The socket: bytes, requests and replies, without their meaning.
noinst_LIBRARIES += daemon/libserver.a
daemon_libserver_a_SOURCES = \
    daemon/io/chain_screen.c \
    daemon/io/chain_screen.h \
    daemon/io/connection.c \
    daemon/io/connection.h \
    daemon/io/frame.c \
    daemon/io/frame.h \
    daemon/io/listener.c \
    daemon/io/listener.h \
    daemon/io/peer.c \
    daemon/io/peer.h \
    daemon/io/server.c \
    daemon/io/server.h \
    daemon/io/tls.h
if TLS
daemon_libserver_a_SOURCES += daemon/io/tls.c
else
daemon_libserver_a_SOURCES += daemon/io/tls_none.c
endif

# The daemon.
sbin_PROGRAMS += cpattnd
cpattnd_SOURCES =
cpattnd_SOURCES += daemon/config.c
cpattnd_SOURCES += daemon/config.h
cpattnd_SOURCES += daemon/io/answer.c
cpattnd_SOURCES += daemon/io/answer.h
cpattnd_SOURCES += daemon/io/answer_log.c
cpattnd_SOURCES += daemon/io/answer_log.h
cpattnd_SOURCES += daemon/io/backend.c
cpattnd_SOURCES += daemon/io/backend.h
cpattnd_SOURCES += daemon/io/confine.c
cpattnd_SOURCES += daemon/io/confine.h
cpattnd_SOURCES += daemon/io/crew.c
cpattnd_SOURCES += daemon/io/crew.h
cpattnd_SOURCES += daemon/io/deposits.c
cpattnd_SOURCES += daemon/io/deposits.h
cpattnd_SOURCES += daemon/io/gpus.c
cpattnd_SOURCES += daemon/io/gpus.h
cpattnd_SOURCES += daemon/io/gate.c
cpattnd_SOURCES += daemon/io/gate.h
cpattnd_SOURCES += daemon/io/host.c
cpattnd_SOURCES += daemon/io/host.h
cpattnd_SOURCES += daemon/io/losses.c
cpattnd_SOURCES += daemon/io/core_config.c daemon/io/core_config.h
cpattnd_SOURCES += daemon/io/open_requests.c daemon/io/open_requests.h
cpattnd_SOURCES += daemon/io/losses.h
cpattnd_SOURCES += daemon/io/mesh.c
cpattnd_SOURCES += daemon/io/mesh.h
cpattnd_SOURCES += daemon/io/notify.c
cpattnd_SOURCES += daemon/io/notify.h
cpattnd_SOURCES += daemon/io/pool_words.c
cpattnd_SOURCES += daemon/io/pool_words.h
cpattnd_SOURCES += daemon/io/proc.c
cpattnd_SOURCES += daemon/io/proc.h
cpattnd_SOURCES += daemon/io/port.c
cpattnd_SOURCES += daemon/io/port.h
cpattnd_SOURCES += daemon/io/peaks.c
cpattnd_SOURCES += daemon/io/peaks.h
cpattnd_SOURCES += daemon/io/probe.c
cpattnd_SOURCES += daemon/io/probe.h
cpattnd_SOURCES += daemon/io/providers.c
cpattnd_SOURCES += daemon/io/providers.h
cpattnd_SOURCES += daemon/io/rank_process.c
cpattnd_SOURCES += daemon/io/rank_process.h
cpattnd_SOURCES += daemon/io/recall.c
cpattnd_SOURCES += daemon/io/recall.h
cpattnd_SOURCES += daemon/io/reply.c
cpattnd_SOURCES += daemon/io/reply.h
cpattnd_SOURCES += daemon/io/service.c
cpattnd_SOURCES += daemon/io/service.h
cpattnd_SOURCES += daemon/io/shell.c
cpattnd_SOURCES += daemon/io/shell.h
cpattnd_SOURCES += daemon/io/spawn.c
cpattnd_SOURCES += daemon/io/spawn.h
cpattnd_SOURCES += daemon/io/stderr_pipe.c
cpattnd_SOURCES += daemon/io/stderr_pipe.h
cpattnd_SOURCES += daemon/io/strays.c
cpattnd_SOURCES += daemon/io/strays.h
cpattnd_SOURCES += daemon/io/tasks.c
cpattnd_SOURCES += daemon/io/tasks.h
cpattnd_SOURCES += daemon/guests.c
cpattnd_SOURCES += daemon/guests.h
cpattnd_SOURCES += daemon/listen.c
cpattnd_SOURCES += daemon/listen.h
cpattnd_SOURCES += daemon/main.c
cpattnd_SOURCES += daemon/provider_list.c
cpattnd_SOURCES += daemon/provider_list.h
cpattnd_SOURCES += daemon/rank_user.c
cpattnd_SOURCES += daemon/rank_user.h
cpattnd_SOURCES += daemon/user_list.c
cpattnd_SOURCES += daemon/user_list.h
cpattnd_LDADD = daemon/libcore.a daemon/libserver.a yaml/libyamltree.la $(base_libs) $(EV_LIBS) \
    $(MBEDTLS_LIBS) $(PROTOBUF_C_LIBS) $(YAML_LIBS) $(MATH_LIBS)
