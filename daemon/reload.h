// SPDX-License-Identifier: Apache-2.0
// Reads the settings again in a thread, so that the loop continues: looking up users or reading a
// slow file system may take seconds.
#ifndef CPATTN_DAEMON_RELOAD_H
#define CPATTN_DAEMON_RELOAD_H

#include <ev.h>
#include <stdbool.h>

#include "common/status.h"
#include "daemon/settings/settings.h"

struct reload;

// `finished` is called on the loop's thread once for each reload, with the new settings, or with
// NULL and the error. RESOURCE_EXHAUSTED.
enum status reload_create(struct ev_loop *loop,
                          void (*finished)(void *context, const struct settings *settings,
                                           const struct error *error),
                          void *context, struct reload **reload, struct error *error) MUST_CHECK;

// Detaches a reload in progress, whose result is dropped. Accepts NULL.
void reload_destroy(struct reload *reload);

// Begins to read the sources of `old` again; `old` is copied. Returns true if a reload is in
// progress: then another one follows it. May call `finished` at once if the thread cannot be
// started.
bool reload_begin(struct reload *reload, const struct settings *old);

#endif
