// SPDX-License-Identifier: Apache-2.0
// The daemon around its service: the loop, signals, systemd, the end.
#ifndef CPATTN_DAEMON_APP_H
#define CPATTN_DAEMON_APP_H

#include "common/status.h"
#include "daemon/settings/settings.h"

struct app;

// Fills in what the configuration leaves to the machine, prepares the process, listens. Must be
// called on the main thread, with no other thread running.
enum status app_create(const struct settings *config, struct app **app,
                       struct error *error) MUST_CHECK;

// Serves until a signal has drained it. Returns the exit status of the process: 0 when every case
// was answered in peace, 1 when cases were cut off.
int app_run(struct app *app);

// Nothing is left of it: no process, no socket file. Takes NULL.
void app_destroy(struct app *app);

#endif
