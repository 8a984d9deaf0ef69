// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/terminal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_is(FILE *stream)
{
    return isatty(fileno(stream));
}

bool terminal_redraws(FILE *stream)
{
    const char *term = getenv("TERM");
    return terminal_is(stream) && term && term[0] && strcmp(term, "dumb") != 0;
}

bool terminal_colours(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    return terminal_redraws(stream) && !(no_color && no_color[0]);
}

int terminal_columns(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

const char *terminal_paint(bool colours, enum terminal_paint paint)
{
    static const char *const sequences[] = {
        [PAINT_PLAIN] = "",        [PAINT_GOOD] = "\033[32m", [PAINT_BAD] = "\033[1;31m",
        [PAINT_WARN] = "\033[33m", [PAINT_DIM] = "\033[2m",   [PAINT_BOLD] = "\033[1m",
    };
    return colours ? sequences[paint] : "";
}

const char *terminal_unpaint(bool colours)
{
    return colours ? "\033[0m" : "";
}

// How many bytes of a text fit in a line of `room` columns: up to the last space that fits, or up
// to the first space if the first word is too long.
static size_t line_length(const char *text, size_t room)
{
    size_t length = strlen(text);
    if (length <= room)
        return length;
    for (size_t i = room; i > 0; i--)
        if (text[i] == ' ')
            return i;
    return strcspn(text, " ");
}

void terminal_wrap(FILE *stream, const char *indent, const char *text)
{
    size_t used = strlen(indent), columns = (size_t)terminal_columns(stream);
    size_t room = terminal_is(stream) && columns > used ? columns - used : SIZE_MAX;
    do {
        size_t length = line_length(text, room);
        fprintf(stream, "%s%.*s\n", indent, (int)length, text);
        text += length + (text[length] == ' ');
    } while (*text);
}
