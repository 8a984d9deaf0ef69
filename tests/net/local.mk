# SPDX-License-Identifier: Apache-2.0
# The socket of the daemon: frames as bytes, and the server with clients that the tests write by
# hand.
test_programs += tests/net/test_frame
tests_net_test_frame_SOURCES = tests/net/test_frame.c
tests_net_test_frame_LDADD = tests/support/libtesting.a daemon/libserver.a $(CHECK_LIBS) $(PTHREAD_LIBS)
server_scene = tests/net/server_scene.c tests/net/server_scene.h
server_scene_libs = tests/support/libtesting.a daemon/libserver.a common/libcommon.la $(EV_LIBS) \
    $(OPENSSL_LIBS) $(CHECK_LIBS) $(PTHREAD_LIBS)
server_scene_flags = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

test_programs += tests/net/test_server
tests_net_test_server_SOURCES = tests/net/test_server.c $(server_scene)
tests_net_test_server_LDADD = $(server_scene_libs)
tests_net_test_server_LDFLAGS = $(server_scene_flags)

test_programs += tests/net/test_acceptor
tests_net_test_acceptor_SOURCES = tests/net/test_acceptor.c
tests_net_test_acceptor_LDADD = tests/support/libtesting.a daemon/libserver.a common/libcommon.la $(EV_LIBS) \
    $(CHECK_LIBS) $(PTHREAD_LIBS)

test_programs += tests/net/test_turns
tests_net_test_turns_SOURCES = tests/net/test_turns.c
tests_net_test_turns_LDADD = tests/support/libtesting.a daemon/libserver.a common/libcommon.la \
    $(CHECK_LIBS) $(PTHREAD_LIBS)

test_programs += tests/net/test_server_limits
tests_net_test_server_limits_SOURCES = tests/net/test_server_limits.c $(server_scene)
tests_net_test_server_limits_LDADD = $(server_scene_libs)
tests_net_test_server_limits_LDFLAGS = $(server_scene_flags)
test_scripts += tests/net/test_wire_clients.sh
EXTRA_DIST += tests/net/wire_clients.py
