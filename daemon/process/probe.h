// SPDX-License-Identifier: Apache-2.0
// A short run of a rank program that says what it finds. The daemon itself loads neither CUDA nor
// kernels of others: what these do to a process, they must not do to the supervisor.
#ifndef CPATTN_DAEMON_PROCESS_PROBE_H
#define CPATTN_DAEMON_PROCESS_PROBE_H

#include <stdbool.h>

#include "daemon/process/confine.h"

#define PROBE_TEXT_MAX 16384

struct probe {
    bool in_time;                                  // it ended by itself
    int status;                                    // as waitpid() tells it
    char out[PROBE_TEXT_MAX], err[PROBE_TEXT_MAX]; // the beginning of what it wrote
};

// Runs a program with the environment and as confined as a rank. It has limit_ms and is killed
// then. `arguments` begin with its name and end with NULL. UNAVAILABLE when it cannot be run. To be
// called on the main thread.
enum status probe_program(const char *program, char *const arguments[],
                          const struct confinement *confinement, int limit_ms, struct probe *result,
                          struct error *error) MUST_CHECK;

// Puts a question mark for each byte that is not printable ASCII.
void probe_clean(char *text);

// The first line of a text, which is cut there and cleaned.
const char *probe_line(char *text);

#endif
