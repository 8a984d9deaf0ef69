// SPDX-License-Identifier: Apache-2.0
// A case on the wire: the message Case | struct cp_case.
#ifndef CPATTN_PROTO_SPEC_H
#define CPATTN_PROTO_SPEC_H

#include "plan/case.h"
#include "proto/map.h"

// Makes a case of the message, which may hold anything. A field that was not sent has the value
// that cpattn.proto says, or is refused where it says none. INVALID_ARGUMENT for one that is
// missing or outside its range, UNIMPLEMENTED for one that this program does not know, and what
// case_check() says; the sentence begins with the field's place in the request, as "case.heads".
enum status spec_decode(const ProtobufCMessage *spec, struct cp_case *c,
                        struct error *error) MUST_CHECK;

// Fills an empty message. INTERNAL for a case whose lists are longer than they may be,
// RESOURCE_EXHAUSTED when scratch memory ends.
enum status spec_encode(const struct cp_case *c, ProtobufCMessage *spec, struct scratch *scratch,
                        struct error *error) MUST_CHECK;

#endif
