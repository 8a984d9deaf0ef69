// SPDX-License-Identifier: Apache-2.0
// Where the results of a command go: a file that is written beside its name and then takes its
// place, so that nobody sees a part of it; or a device, a pipe or a link, which is written to.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H

#include <stdbool.h>

// Whether a new file may take the place of what is at the path: a regular file, or nothing. Not of
// a link: /dev/stdout is one, and may lead to a file.
bool plain_file(const char *path);

#endif
