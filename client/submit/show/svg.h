// SPDX-License-Identifier: Apache-2.0
// The timeline of a case as a picture (SVG 1.1): for each rank a lane of computation and a lane of
// exchanges, with arrows for waits. Pure except for the stream.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_SVG_H
#define CPATTN_CLIENT_SUBMIT_SHOW_SVG_H

#include <stdio.h>

#include "plan/timeline.h"

// With more ranks messages are not drawn, as they would cover everything, and ranks with the same
// timeline are drawn once.
#define SVG_MESSAGES_RANKS_MAX 8

// The plans of all ranks, and the timeline made of them.
struct svg_panel {
    struct plan *const *plans;
    const struct timeline *timeline;
};

// Draws one or several panels, one below the other, on the same axis of time. The caller checks the
// stream for errors.
void svg_draw(FILE *out, const struct svg_panel *panels, int count,
              const struct timeline_rates *rates);

#endif
