// SPDX-License-Identifier: Apache-2.0
// The whole screen of a terminal. Only screen.c uses curses; a build without it has
// screen_none.c instead, where screen_open() refuses.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_SCREEN_H
#define CPATTN_CLIENT_SUBMIT_SHOW_SCREEN_H

#include "client/submit/show/frame.h"

// Takes over the terminal of standard output until screen_close(). Returns NULL, or half a sentence
// on why it cannot.
const char *screen_open(void);
void screen_close(void);

// The current size.
void screen_size(int *columns, int *rows);

void screen_draw(const struct frame *f);

// Waits for a key, at most the given milliseconds. 0: no key; SCREEN_RESIZED: draw again.
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
