// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/screen.h"

const char *screen_open(void)
{
    return "this build has no curses; --once prints one picture";
}

void screen_close(void)
{
}

void screen_size(int *columns, int *rows)
{
    *columns = 80;
    *rows = 24;
}

void screen_draw(const struct frame *f)
{
    (void)f;
}

int screen_key(int wait_ms)
{
    (void)wait_ms;
    return 0;
}
