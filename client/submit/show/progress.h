// SPDX-License-Identifier: Apache-2.0
// The progress of many cases or runs: one line that is redrawn in place on a terminal; elsewhere
// nothing.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_PROGRESS_H
#define CPATTN_CLIENT_SUBMIT_SHOW_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool live; // `out` is a terminal
    bool shown;
    bool runs; // of one case: their verdicts are not counted
    uint64_t start_ns;
    int total, done, passed, failed, errors;
};

void progress_init(struct progress *p, FILE *out, int total, uint64_t now_ns);

// Redraws the line. `what`: the current case, or "".
void progress_draw(struct progress *p, uint64_t now_ns, const char *what);

// Erases the line, before other output and at the end.
void progress_clear(struct progress *p);

// Writes the current line without escape sequences, cut to `columns`; pure.
void progress_text(const struct progress *p, uint64_t now_ns, const char *what, int columns,
                   char *text, size_t size);

#endif
