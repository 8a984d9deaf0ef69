// SPDX-License-Identifier: Apache-2.0
// Tensors of a client on the wire: the message Attend | struct whole_places.
#ifndef CPATTN_PROTO_ATTEND_H
#define CPATTN_PROTO_ATTEND_H

#include "plan/places.h"
#include "proto/map.h"

// Reads the message, which may hold anything, for a case that case_check() admits. Names, dtypes
// and shapes are compared with what the case has; the offsets are any number. INVALID_ARGUMENT with
// the tensor that is wrong, UNIMPLEMENTED for a field that this program does not know.
enum status attend_decode(const struct cp_case *c, const ProtobufCMessage *attend,
                          struct whole_places *places, struct error *error) MUST_CHECK;

// Fills an empty message. RESOURCE_EXHAUSTED when scratch memory ends.
enum status attend_encode(const struct cp_case *c, const struct whole_places *places,
                          ProtobufCMessage *attend, struct scratch *scratch,
                          struct error *error) MUST_CHECK;

#endif
