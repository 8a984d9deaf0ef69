// SPDX-License-Identifier: Apache-2.0
// The daemon around its service: the loop, signals, systemd, the end.
#ifndef CPATTN_DAEMON_IO_SHELL_H
#define CPATTN_DAEMON_IO_SHELL_H

#include "common/status.h"
#include "daemon/config.h"

struct shell;

// Fills in what the configuration leaves to the machine, prepares the process, listens. Must be
// called on the main thread, with no other thread running.
enum status shell_create(const struct config *config, struct shell **shell,
                         struct error *error) MUST_CHECK;

// Serves until a signal has drained it. Returns the exit status of the process: 0 when every case
// was answered in peace, 1 when cases were cut off.
int shell_run(struct shell *shell);

// Nothing is left of it: no process, no socket file. Takes NULL.
void shell_destroy(struct shell *shell);

#endif
