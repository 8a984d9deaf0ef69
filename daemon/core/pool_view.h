// SPDX-License-Identifier: Apache-2.0
// What actions and messages say of a pool.
#ifndef CPATTN_DAEMON_CORE_POOL_VIEW_H
#define CPATTN_DAEMON_CORE_POOL_VIEW_H

#include "daemon/core/state.h"

// An action with what it says of the pool filled in; `pool` may be NULL.
struct action pool_action(enum action_kind kind, const struct pool *pool);

// Why a pool was lost, in a few words; empty: LOSS_NONE.
const char *pool_loss_words(enum pool_loss loss);

// A few words on how it was lost last; empty when it never was.
void pool_loss_text(const struct core *core, const struct pool *pool, struct error *text);

#endif
