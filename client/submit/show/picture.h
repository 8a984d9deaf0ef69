// SPDX-License-Identifier: Apache-2.0
// The drawing of a timeline: where times, lanes and rows are, and texts and boxes at these places.
// Pure except for the stream.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_PICTURE_H
#define CPATTN_CLIENT_SUBMIT_SHOW_PICTURE_H

#include <stdio.h>

#include "client/submit/show/lanes.h"
#include "plan/timeline.h"

// In pixels; the plot is the part with the lanes.
#define PICTURE_WIDTH       1600
#define PICTURE_LEFT        120
#define PICTURE_RIGHT       (PICTURE_WIDTH - 24)
#define PICTURE_TOP         108
#define PICTURE_LANE_HEIGHT 30
#define PICTURE_LANE_GAP    8

// Width of a character of a box's label, rounded up.
#define PICTURE_CHARACTER 5.9

struct picture {
    FILE *out;
    struct plan *const *plans;
    const struct timeline *timeline;
    const struct timeline_rates *rates;
    struct lanes lanes;
    double end;     // of the axis of time, in seconds
    double second;  // pixels of one second
    double fastest; // end of the fastest of several timelines; 0: there is only one
};

// The x coordinate of a time in seconds.
double picture_x(const struct picture *p, double seconds);

// The upper edge of a lane of a row, and of the row of a rank.
double picture_row_y(int row, enum plan_stream stream);
double picture_rank_y(const struct picture *p, int rank, enum plan_stream stream);

// The lower edge of the last lane.
double picture_bottom(const struct picture *p);

// Number of characters, not of bytes.
int picture_text_width(const char *text);

// Writes a text, escaped, at its base line. `class` is a class of the style sheet.
void picture_text(const struct picture *p, const char *class, double x, double y,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

// Draws a box; a very narrow one is drawn wide enough to be seen.
void picture_rectangle(const struct picture *p, const char *class, double x, double y, double width,
                       double height);

#endif
