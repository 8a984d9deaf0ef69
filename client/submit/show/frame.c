// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/frame.h"

#include <stdarg.h>
#include <string.h>

void frame_begin(struct frame *f, int columns, int rows_max)
{
    f->columns = columns < FRAME_COLUMNS_MAX ? columns : FRAME_COLUMNS_MAX;
    f->rows_max = rows_max < FRAME_ROWS_MAX ? rows_max : FRAME_ROWS_MAX;
    f->rows = 0;
}

bool frame_row(struct frame *f)
{
    if (f->rows >= f->rows_max) {
        f->rows = f->rows_max + 1; // further text is dropped
        return false;
    }
    f->list[f->rows].length = 0;
    f->list[f->rows++].text[0] = '\0';
    return true;
}

static struct frame_row *row_of(struct frame *f)
{
    return f->rows > 0 && f->rows <= f->rows_max ? &f->list[f->rows - 1] : NULL;
}

void frame_put(struct frame *f, enum terminal_paint paint, const char *format, ...)
{
    struct frame_row *row = row_of(f);
    char text[FRAME_COLUMNS_MAX + 1];
    va_list arguments;
    if (!row)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (const char *at = text; *at && row->length < f->columns; at++) {
        row->paints[row->length] = (unsigned char)paint;
        row->text[row->length++] = (char)(*at < ' ' || *at > '~' ? '?' : *at);
    }
    row->text[row->length] = '\0';
}

void frame_tab(struct frame *f, int column)
{
    struct frame_row *row = row_of(f);
    if (row && row->length > 0 && row->length >= column)
        frame_put(f, PAINT_PLAIN, " ");
    else if (row)
        frame_put(f, PAINT_PLAIN, "%*s", column - row->length, "");
}

void frame_cut(struct frame *f, int first, int count)
{
    int rows = f->rows < f->rows_max ? f->rows : f->rows_max;
    int kept = rows - first < count ? rows - first : count;
    f->rows = kept > 0 ? kept : 0;
    memmove(f->list, f->list + first, (size_t)f->rows * sizeof(f->list[0]));
}

static void row_print(const struct frame_row *row, FILE *out, bool colours)
{
    int length = row->length;
    enum terminal_paint paint = PAINT_PLAIN;
    while (length > 0 && row->text[length - 1] == ' ')
        length--;
    for (int i = 0; i < length; i++) {
        if (colours && row->paints[i] != paint) {
            fputs(terminal_unpaint(true), out);
            paint = (enum terminal_paint)row->paints[i];
            fputs(terminal_paint(true, paint), out);
        }
        fputc(row->text[i], out);
    }
    if (paint != PAINT_PLAIN)
        fputs(terminal_unpaint(true), out);
    fputc('\n', out);
}

void frame_print(const struct frame *f, FILE *out, bool colours)
{
    int rows = f->rows < f->rows_max ? f->rows : f->rows_max;
    for (int i = 0; i < rows; i++)
        row_print(&f->list[i], out, colours);
}
