// SPDX-License-Identifier: Apache-2.0
// Tensors of a client on the wire: the message Attend | struct whole_places.
#ifndef CPATTN_PROTO_ATTEND_H
#define CPATTN_PROTO_ATTEND_H

#include "plan/places.h"
#include "proto/map.h"

// Reads an untrusted message for a case that case_check() admits. Compares names, dtypes and shapes
// with those of the case; offsets are not checked. INVALID_ARGUMENT names the wrong tensor,
// UNIMPLEMENTED: a field that this program does not know.
enum status attend_decode(const struct cp_case *c, const ProtobufCMessage *attend,
                          struct whole_places *places, struct error *error) MUST_CHECK;

// Fills in an empty message. RESOURCE_EXHAUSTED: out of scratch memory.
enum status attend_encode(const struct cp_case *c, const struct whole_places *places,
                          ProtobufCMessage *attend, struct scratch *scratch,
                          struct error *error) MUST_CHECK;

#endif
