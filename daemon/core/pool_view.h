// SPDX-License-Identifier: Apache-2.0
// Descriptions of a pool for actions and messages.
#ifndef CPATTN_DAEMON_CORE_POOL_VIEW_H
#define CPATTN_DAEMON_CORE_POOL_VIEW_H

#include "daemon/core/state.h"

// Returns an action with the members about the pool filled in; `pool` may be NULL.
struct action pool_action(enum action_kind kind, const struct pool *pool);

// Why a pool was lost, in a few words; empty: LOSS_NONE.
const char *pool_loss_words(enum pool_loss loss);

// How the pool was last lost, in a few words; empty: never.
void pool_loss_text(const struct core *core, const struct pool *pool, struct error *text);

#endif
