// SPDX-License-Identifier: Apache-2.0
// Settings read again beside the loop: what looks users up, or reads files of a slow file system,
// may take seconds, and the daemon serves on.
#ifndef CPATTN_DAEMON_RELOAD_H
#define CPATTN_DAEMON_RELOAD_H

#include <ev.h>

#include "common/status.h"
#include "daemon/settings/settings.h"

struct reload;

// `finished` is called on the loop's thread once for each reload, with what was read, or with the
// reason why it was not (`settings` is NULL then). RESOURCE_EXHAUSTED.
enum status reload_create(struct ev_loop *loop,
                          void (*finished)(void *context, const struct settings *settings,
                                           const struct error *error),
                          void *context, struct reload **reload, struct error *error) MUST_CHECK;

// One that is under way is left to itself. Takes NULL.
void reload_destroy(struct reload *reload);

// Begins to read what `old` was read from, which is copied. While one is under way: another follows
// when that has ended.
void reload_begin(struct reload *reload, const struct settings *old);

#endif
