// SPDX-License-Identifier: Apache-2.0
// The daemon process: event loop, signals, systemd, shutdown.
#ifndef CPATTN_DAEMON_APP_H
#define CPATTN_DAEMON_APP_H

#include "common/status.h"
#include "daemon/settings/settings.h"

struct app;

// Fills in the settings that depend on the machine, prepares the process, and listens. Call on the
// main thread, before other threads are started.
enum status app_create(const struct settings *config, struct app **app,
                       struct error *error) MUST_CHECK;

// Serves until a signal has drained it. Returns the exit status of the process: 0 if all cases were
// answered, 1 if some were cut off.
int app_run(struct app *app);

// Ends all rank processes and removes the socket file. Accepts NULL.
void app_destroy(struct app *app);

#endif
