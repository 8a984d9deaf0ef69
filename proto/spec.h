// SPDX-License-Identifier: Apache-2.0
// Conversion between the message Case and struct cp_case.
#ifndef CPATTN_PROTO_SPEC_H
#define CPATTN_PROTO_SPEC_H

#include "plan/case.h"
#include "proto/map.h"

// Converts an untrusted message to a case. A field that was not sent has the default of
// cpattn.proto, or is refused if it has none. INVALID_ARGUMENT: a field is missing or outside its
// range; UNIMPLEMENTED: an unknown field; else the status of case_check(). The error text begins
// with the path of the field, as "case.heads".
enum status spec_decode(const ProtobufCMessage *spec, struct cp_case *c,
                        struct error *error) MUST_CHECK;

// Fills in an empty message. INTERNAL: a list of the case is too long; RESOURCE_EXHAUSTED: out of
// scratch memory.
enum status spec_encode(const struct cp_case *c, ProtobufCMessage *spec, struct scratch *scratch,
                        struct error *error) MUST_CHECK;

#endif
