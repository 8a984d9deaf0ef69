// SPDX-License-Identifier: Apache-2.0
// Sends log lines to systemd's journal as entries in which each key=value is a field. Uses the
// journal's native protocol: datagrams to a unix socket.
#ifndef CPATTN_COMMON_JOURNAL_H
#define CPATTN_COMMON_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_SOCKET       "/run/systemd/journal/socket"
// Upper bound of the bytes of an entry for a line of `length` bytes.
#define JOURNAL_ROOM(length) (8 * (length) + 256)

// Returns a connected, non-blocking, close-on-exec socket; -1: there is no journal.
int journal_connect(const char *path);

// Writes "event key=value key="quoted value" ..." as an entry: PRIORITY, SYSLOG_IDENTIFIER, MESSAGE
// (the line), CPATTN_EVENT and CPATTN_KEY for each key. The line has no newline; `out` has
// JOURNAL_ROOM(length). Returns the number of bytes written.
size_t journal_compose(int priority, const char *identifier, const char *line, size_t length,
                       char *out);

// Returns false if the entry could not be sent at once.
bool journal_send(int fd, const char *entry, size_t size);

#endif
