// SPDX-License-Identifier: Apache-2.0
// What a client wants of a case in its own memory: the rank's part of inputs, of results as they
// were computed, and of results as the reference has them.
#ifndef CPATTN_RANK_DELIVER_H
#define CPATTN_RANK_DELIVER_H

#include "rank/engine.h"
#include "rank/segments.h"

// To be called once the case is verified and before the engine's memory is released. Padding is
// left as it is. RESOURCE_EXHAUSTED: memory is short, of this process or the client's; INTERNAL:
// the engine cannot read its memory. After neither is the rank out of step.
enum status deliver(struct engine *e, const struct job *j, const struct segments *s,
                    struct error *error) MUST_CHECK;

// The part of it that is expected (rank/deliver_expected.c).
enum status deliver_expected(const struct job *j, const struct segments *s,
                             struct error *error) MUST_CHECK;

#endif
