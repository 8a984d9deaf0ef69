// SPDX-License-Identifier: Apache-2.0
// How far many cases or many runs are: one line that stays in its place on a terminal, nothing
// elsewhere.
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

// Draws the line anew. `what` is what is under way, or "".
void progress_draw(struct progress *p, uint64_t now_ns, const char *what);

// Takes the line away, before something else is written and at the end.
void progress_clear(struct progress *p);

// Writes the line of that moment without escape sequences, cut to `columns`; pure.
void progress_text(const struct progress *p, uint64_t now_ns, const char *what, int columns,
                   char *text, size_t size);

#endif
