# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += proto/libproto.la
proto_libproto_la_SOURCES = $(proto_sources)
proto_libproto_la_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
proto_libproto_la_LIBADD = proto/libgenerated.la

proto_sources = \
    proto/attend.c \
    proto/attend.h \
    proto/decode_reply.c \
    proto/decode_request.c \
    proto/encode.c \
    proto/map.c \
    proto/map.h \
    proto/peek.c \
    proto/schema.c \
    proto/schema.h \
    proto/scratch.c \
    proto/scratch.h \
    proto/spec.c \
    proto/spec.h \
    proto/wire.c \
    proto/wire.h
EXTRA_DIST += proto/cpattn.proto

# Generated code is compiled without warnings.
noinst_LTLIBRARIES += proto/libgenerated.la
nodist_proto_libgenerated_la_SOURCES = proto/cpattn.pb-c.c proto/cpattn.pb-c.h
proto_libgenerated_la_SOURCES =
proto_libgenerated_la_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
proto_libgenerated_la_CFLAGS = $(AM_CFLAGS) -w

BUILT_SOURCES += proto/cpattn.pb-c.c proto/cpattn.pb-c.h
CLEANFILES += proto/cpattn.pb-c.c proto/cpattn.pb-c.h

# In a pattern rule, make runs the recipe once for both targets.
proto/%.pb-c.c proto/%.pb-c.h: proto/%.proto
	$(AM_V_GEN)$(MKDIR_P) proto && \
	$(PROTOC_C) --proto_path=$(top_srcdir) --c_out=. $<
