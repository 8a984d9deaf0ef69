// SPDX-License-Identifier: Apache-2.0
// The end of a rank process: exit, signal, or unknown.
#ifndef CPATTN_COMMON_RANK_END_H
#define CPATTN_COMMON_RANK_END_H

#include <stdbool.h>

enum rank_end_kind {
    RANK_LIVES,
    RANK_EXITED,    // `number` is the exit status
    RANK_SIGNALLED, // `number` is the signal that killed the process
    RANK_VANISHED,  // the cause is not known
};

struct rank_end {
    enum rank_end_kind kind;
    int number;
};

#define RANK_END_TEXT_MAX 96

// Converts the status of wait() for a process that has ended.
struct rank_end rank_end_of(int wait_status);

// True if the rank was killed by a signal that comes from an operator, a batch system, or the
// kernel when memory is short, rather than from a fault of the process itself.
bool rank_end_is_from_outside(const struct rank_end *end);

// Writes "exited with 1", "killed by signal 9 (SIGKILL)" or "vanished"; "" while the rank lives.
// Returns `text`.
const char *rank_end_text(const struct rank_end *end, char text[RANK_END_TEXT_MAX]);

// The same as a predicate: "was killed by signal 9 (SIGKILL)".
const char *rank_end_said(const struct rank_end *end, char text[RANK_END_TEXT_MAX]);

#endif
