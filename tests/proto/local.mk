# SPDX-License-Identifier: Apache-2.0
test_programs += tests/proto/test_wire
tests_proto_test_wire_SOURCES = tests/proto/test_wire.c $(wire_samples)
tests_proto_test_wire_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=free

test_programs += tests/proto/test_wire_schema
tests_proto_test_wire_schema_SOURCES = tests/proto/test_wire_schema.c

test_programs += tests/proto/test_wire_attend
tests_proto_test_wire_attend_SOURCES = tests/proto/test_wire_attend.c

test_programs += tests/proto/test_wire_requests
tests_proto_test_wire_requests_SOURCES = tests/proto/test_wire_requests.c $(wire_samples)

test_programs += tests/proto/test_wire_hostile
tests_proto_test_wire_hostile_SOURCES = tests/proto/test_wire_hostile.c $(wire_samples)
