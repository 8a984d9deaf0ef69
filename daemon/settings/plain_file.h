// SPDX-License-Identifier: Apache-2.0
// Files that a running daemon reads again.
#ifndef CPATTN_DAEMON_SETTINGS_PLAIN_FILE_H
#define CPATTN_DAEMON_SETTINGS_PLAIN_FILE_H

#include "common/status.h"

// INVALID_ARGUMENT, with the name of the setting, if the path leads to a pipe, a terminal or
// another file that is not a regular one: reading it could wait for ever. OK for an empty path, and
// for a file that is not there, which its reader tells better.
enum status plain_file_check(const char *setting, const char *path, struct error *error) MUST_CHECK;

#endif
