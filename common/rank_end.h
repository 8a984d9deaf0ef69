// SPDX-License-Identifier: Apache-2.0
// The end of a rank process: exit, signal, or unknown.
#ifndef CPATTN_COMMON_RANK_END_H
#define CPATTN_COMMON_RANK_END_H

#include <stdbool.h>

enum rank_end_kind {
    RANK_LIVES,
    RANK_EXITED,    // `number` is its exit status
    RANK_SIGNALLED, // `number`: the signal that ended it
    RANK_VANISHED,  // the cause is not known
};

struct rank_end {
    enum rank_end_kind kind;
    int number;
};

#define RANK_END_TEXT_MAX 96

// Converts the status of wait().
struct rank_end rank_end_of(int wait_status);

// True if a signal has ended it that does not follow from a fault of the process itself, but is
// sent by an operator, a batch system, or the kernel when memory is short.
bool rank_end_is_from_outside(const struct rank_end *end);

// "exited with 1", "killed by signal 9 (SIGKILL)", "vanished"; "" while it lives.
const char *rank_end_text(const struct rank_end *end, char text[RANK_END_TEXT_MAX]);

// The same as a predicate: "was killed by signal 9 (SIGKILL)".
const char *rank_end_said(const struct rank_end *end, char text[RANK_END_TEXT_MAX]);

#endif
