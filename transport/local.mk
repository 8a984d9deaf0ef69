# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += transport/libtransport.a
transport_libtransport_a_SOURCES = $(transport_sources)

# The tests compile these files again, with mutations.
transport_sources =
transport_sources += transport/socket.c
transport_sources += transport/transport.h
