// SPDX-License-Identifier: Apache-2.0
// The whole screen of a terminal. The one place that knows curses; a build without it has
// screen_none.c instead, where screen_open() refuses.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_SCREEN_H
#define CPATTN_CLIENT_SUBMIT_SHOW_SCREEN_H

#include "client/submit/show/frame.h"

// Takes the screen of standard output, until screen_close(). NULL, or half a sentence: why not.
const char *screen_open(void);
void screen_close(void);

// Columns and rows as they are now.
void screen_size(int *columns, int *rows);

void screen_draw(const struct frame *f);

// Waits for a key up to so many milliseconds. 0: there was none; SCREEN_RESIZED: draw again.
enum {
    SCREEN_RESIZED = 0x110000,
    SCREEN_UP,
    SCREEN_DOWN,
    SCREEN_PAGE_UP,
    SCREEN_PAGE_DOWN,
    SCREEN_HOME,
    SCREEN_END,
};
int screen_key(int wait_ms);

#endif
