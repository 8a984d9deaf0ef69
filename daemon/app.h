// SPDX-License-Identifier: Apache-2.0
// The daemon process: event loop, signals, systemd, shutdown.
#ifndef CPATTN_DAEMON_APP_H
#define CPATTN_DAEMON_APP_H

#include "common/status.h"
#include "daemon/settings/settings.h"

struct app;

// Prepares the process, selects the backend and listens. Copies `config`. Call on the main thread,
// before other threads are started.
enum status app_create(const struct settings *config, struct app **app,
                       struct error *error) MUST_CHECK;

// Runs the event loop until a signal has drained or stopped the daemon. Returns the exit status of
// the process: 0 after a complete drain, 1 after a stop, which may cut off cases.
int app_run(struct app *app);

// Ends all rank processes and removes the socket file. Accepts NULL.
void app_destroy(struct app *app);

#endif
