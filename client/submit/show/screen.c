// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/screen.h"

#include <curses.h>

static SCREEN *screen;

const char *screen_open(void)
{
    if (!terminal_is(stdout) || !terminal_is(stdin))
        return "standard input and output are no terminal; --once prints one picture";
    screen = newterm(NULL, stdout, stdin);
    if (!screen)
        return "the terminal is not known to curses (TERM); --once prints one picture";
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    if (terminal_colours(stdout) && has_colors()) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_GREEN, -1);
        init_pair(2, COLOR_RED, -1);
        init_pair(3, COLOR_YELLOW, -1);
    }
    return NULL;
}

void screen_close(void)
{
    if (!screen)
        return;
    endwin();
    delscreen(screen);
    screen = NULL;
}

void screen_size(int *columns, int *rows)
{
    getmaxyx(stdscr, *rows, *columns);
}

// Without colours, errors are bold and reversed, and warnings underlined.
static attr_t attributes(enum terminal_paint paint)
{
    bool colours = terminal_colours(stdout) && has_colors();
    switch (paint) {
    case PAINT_GOOD:
        return colours ? (attr_t)COLOR_PAIR(1) : A_NORMAL;
    case PAINT_BAD:
        return A_BOLD | (colours ? (attr_t)COLOR_PAIR(2) : A_REVERSE);
    case PAINT_WARN:
        return colours ? (attr_t)COLOR_PAIR(3) : A_UNDERLINE;
    case PAINT_DIM:
        return A_DIM;
    case PAINT_BOLD:
        return A_BOLD;
    case PAINT_PLAIN:
        break;
    }
    return A_NORMAL;
}

void screen_draw(const struct frame *f)
{
    erase();
    for (int y = 0; y < f->rows && y < f->rows_max; y++)
        for (int x = 0; x < f->list[y].length; x++)
            mvaddch(y, x,
                    (chtype)(unsigned char)f->list[y].text[x] |
                        attributes((enum terminal_paint)f->list[y].paints[x]));
    refresh();
}

int screen_key(int wait_ms)
{
    timeout(wait_ms);
    int key = getch();
    switch (key) {
    case ERR:
        return 0;
    case KEY_RESIZE:
        return SCREEN_RESIZED;
    case KEY_UP:
        return SCREEN_UP;
    case KEY_DOWN:
        return SCREEN_DOWN;
    case KEY_PPAGE:
        return SCREEN_PAGE_UP;
    case KEY_NPAGE:
        return SCREEN_PAGE_DOWN;
    case KEY_HOME:
        return SCREEN_HOME;
    case KEY_END:
        return SCREEN_END;
    default:
        return key;
    }
}
