// SPDX-License-Identifier: Apache-2.0
// A picture of lines of text with colours, for a full-screen display or a script.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_FRAME_H
#define CPATTN_CLIENT_SUBMIT_SHOW_FRAME_H

#include <stdbool.h>
#include <stdio.h>

#include "client/submit/show/terminal.h"

#define FRAME_COLUMNS_MAX 512
#define FRAME_ROWS_MAX    512

struct frame {
    int columns, rows_max; // up to the bounds above
    int rows;              // rows in use; text is appended to the last
    struct frame_row {
        int length;
        char text[FRAME_COLUMNS_MAX + 1];
        unsigned char paints[FRAME_COLUMNS_MAX]; // enum terminal_paint
    } list[FRAME_ROWS_MAX];
};

// Starts an empty picture.
void frame_begin(struct frame *f, int columns, int rows_max);

// Begins a row; false: the picture is full, and further text is dropped until frame_begin().
bool frame_row(struct frame *f);

// Appends text to the row; cuts off what does not fit.
void frame_put(struct frame *f, enum terminal_paint paint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Continues at this column, or after one blank if the row is already beyond it.
void frame_tab(struct frame *f, int column);

// Keeps `count` rows from `first` on and drops the others; rows can then be put below them.
void frame_cut(struct frame *f, int first, int count);

// Writes the rows, with colours if `colours`.
void frame_print(const struct frame *f, FILE *out, bool colours);

#endif
