// SPDX-License-Identifier: Apache-2.0
// What the daemon holds of one rank: what it has said, and how it fares. Where its process runs is
// the business of the crew.
#ifndef CPATTN_DAEMON_POOL_RANK_PROCESS_H
#define CPATTN_DAEMON_POOL_RANK_PROCESS_H

#include "common/channel.h"
#include "daemon/pool/crew_state.h"

// A frame from it. Not OK: it breaks a rule.
enum status rank_process_frame(struct rank_process *r, const struct channel_frame *frame,
                               const void *payload, struct error *error) MUST_CHECK;

// Records a failure of a rank that breaks the channel's rules or cannot be reached.
void rank_process_distrust(struct rank_process *r, const struct error *error);

#endif
