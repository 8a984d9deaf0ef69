// SPDX-License-Identifier: Apache-2.0
// Writes the rank's part of inputs, computed results and expected results to the client's memory.
#ifndef CPATTN_RANK_DELIVER_H
#define CPATTN_RANK_DELIVER_H

#include "rank/engine.h"
#include "rank/segments.h"

// Delivers all wanted tensors. Call after the case is verified and before the engine's memory is
// released. Does not write padding. RESOURCE_EXHAUSTED: out of memory in this process or in the
// client's segment; INTERNAL: the engine cannot read its memory. The session stays usable after
// both.
enum status deliver(struct engine *e, const struct job *j, const struct segments *s,
                    struct error *error) MUST_CHECK;

// Computes and delivers the expected results; deliver() calls it (rank/deliver_expected.c).
enum status deliver_expected(const struct job *j, const struct segments *s,
                             struct error *error) MUST_CHECK;

#endif
