// SPDX-License-Identifier: Apache-2.0
// Handles the messages of one rank, wherever its process runs.
#ifndef CPATTN_DAEMON_POOL_RANK_PROCESS_H
#define CPATTN_DAEMON_POOL_RANK_PROCESS_H

#include "common/channel.h"
#include "daemon/pool/crew_state.h"

// Handles a frame from the rank. Not OK: the frame breaks the protocol.
enum status rank_process_frame(struct rank_process *r, const struct channel_frame *frame,
                               const void *payload, struct error *error) MUST_CHECK;

// A rank has broken the channel's rules or cannot be reached: records, logs and reports the
// failure; sends it no more messages.
void rank_process_distrust(struct rank_process *r, const struct error *error);

#endif
