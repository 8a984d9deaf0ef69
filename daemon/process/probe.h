// SPDX-License-Identifier: Apache-2.0
// Runs a rank program once and collects its output, to learn about GPUs or providers. The daemon
// itself loads neither CUDA nor foreign kernels, so that they cannot harm the supervisor.
#ifndef CPATTN_DAEMON_PROCESS_PROBE_H
#define CPATTN_DAEMON_PROCESS_PROBE_H

#include <stdbool.h>

#include "daemon/process/confine.h"

#define PROBE_TEXT_MAX 16384

struct probe {
    bool in_time;                                  // its output ended within the time limit
    int status;                                    // as from waitpid()
    char out[PROBE_TEXT_MAX], err[PROBE_TEXT_MAX]; // the beginning of its output
};

// Runs a program with the environment and confinement of a rank, waits for it, and kills it after
// limit_ms. `arguments` begin with its name and end with NULL. Errors as of spawn_process(): it
// cannot be run. Call on the main thread.
enum status probe_program(const char *program, char *const arguments[],
                          const struct confinement *confinement, int limit_ms, struct probe *result,
                          struct error *error) MUST_CHECK;

// Replaces each byte that is not printable ASCII by a question mark.
void probe_clean(char *text);

// Truncates a text to its first line, cleans it and returns it.
const char *probe_line(char *text);

#endif
