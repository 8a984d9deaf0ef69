// SPDX-License-Identifier: Apache-2.0
// Check of files that a running daemon reads again.
#ifndef CPATTN_DAEMON_SETTINGS_PLAIN_FILE_H
#define CPATTN_DAEMON_SETTINGS_PLAIN_FILE_H

#include "common/status.h"

// INVALID_ARGUMENT, with the name of the setting, if the path leads to a pipe, a terminal or
// another special file: reading it could block forever. OK for an empty path, and for a missing
// file or a directory, for which the reader has a better message.
enum status plain_file_check(const char *setting, const char *path, struct error *error) MUST_CHECK;

#endif
