// SPDX-License-Identifier: Apache-2.0
// Conversion of a client's tensors between the message Attend and struct whole_places.
#ifndef CPATTN_PROTO_ATTEND_H
#define CPATTN_PROTO_ATTEND_H

#include "plan/places.h"
#include "proto/map.h"

// Reads an untrusted message for a case that case_check() admits. Names, dtypes and shapes must be
// those of the case. Offsets must not be negative; their upper bound is not checked.
// INVALID_ARGUMENT: the text names the wrong tensor. UNIMPLEMENTED: the message has a field that
// this program does not know.
enum status attend_decode(const struct cp_case *c, const ProtobufCMessage *attend,
                          struct whole_places *places, struct error *error) MUST_CHECK;

// Fills in an empty message. RESOURCE_EXHAUSTED: out of scratch memory.
enum status attend_encode(const struct cp_case *c, const struct whole_places *places,
                          ProtobufCMessage *attend, struct scratch *scratch,
                          struct error *error) MUST_CHECK;

#endif
