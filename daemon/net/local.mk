# SPDX-License-Identifier: Apache-2.0
# The sockets: they transfer requests and replies as bytes, and do not interpret them.
noinst_LIBRARIES += daemon/libserver.a
daemon_libserver_a_SOURCES =
daemon_libserver_a_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
daemon_libserver_a_SOURCES += daemon/net/accept.c daemon/net/accept.h
daemon_libserver_a_SOURCES += daemon/net/acceptor.c daemon/net/acceptor.h
daemon_libserver_a_SOURCES += daemon/net/connection.c
daemon_libserver_a_SOURCES += daemon/net/connection.h
daemon_libserver_a_SOURCES += daemon/net/frame.c
daemon_libserver_a_SOURCES += daemon/net/frame.h
daemon_libserver_a_SOURCES += daemon/net/listener.c
daemon_libserver_a_SOURCES += daemon/net/listener.h
daemon_libserver_a_SOURCES += daemon/net/peer.c
daemon_libserver_a_SOURCES += daemon/net/peer.h
daemon_libserver_a_SOURCES += daemon/net/server.c
daemon_libserver_a_SOURCES += daemon/net/server.h
daemon_libserver_a_SOURCES += daemon/net/subjects.c daemon/net/subjects.h
daemon_libserver_a_SOURCES += daemon/net/log_quota.c
daemon_libserver_a_SOURCES += daemon/net/log_quota.h
daemon_libserver_a_SOURCES += daemon/net/shakes.c
daemon_libserver_a_SOURCES += daemon/net/shakes.h
daemon_libserver_a_SOURCES += daemon/net/turns.c
daemon_libserver_a_SOURCES += daemon/net/turns.h
daemon_libserver_a_SOURCES += daemon/net/tls.h
if TLS
daemon_libserver_a_SOURCES += daemon/net/tls.c
else
daemon_libserver_a_SOURCES += daemon/net/tls_none.c
endif

# Files that only the daemon links, not the agent.
cpattnd_SOURCES += daemon/net/deposits.c
cpattnd_SOURCES += daemon/net/deposits.h
cpattnd_SOURCES += daemon/net/port.c
cpattnd_SOURCES += daemon/net/port.h
cpattnd_SOURCES += daemon/net/http.h
if MICROHTTPD
cpattnd_SOURCES += daemon/net/http.c
else
cpattnd_SOURCES += daemon/net/http_none.c
endif
