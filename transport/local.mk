# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += transport/libtransport.a
transport_libtransport_a_SOURCES = $(transport_sources)

# Compiled a second time, with mutations, for the tests.
transport_sources =
transport_sources += transport/socket.c
transport_sources += transport/transport.h
