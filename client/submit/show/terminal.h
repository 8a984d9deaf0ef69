// SPDX-License-Identifier: Apache-2.0
// What a stream can show: colour and width.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_TERMINAL_H
#define CPATTN_CLIENT_SUBMIT_SHOW_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum terminal_paint { PAINT_PLAIN, PAINT_GOOD, PAINT_BAD, PAINT_WARN, PAINT_DIM, PAINT_BOLD };

// Whether `stream` is a terminal that a person watches.
bool terminal_is(FILE *stream);

// Whether a line there can be drawn over: a terminal, TERM is set and not "dumb".
bool terminal_redraws(FILE *stream);

// Whether colour is wanted there: it redraws, and NO_COLOR is not set.
bool terminal_colours(FILE *stream);

// Columns of the terminal; 80 where that is unknown.
int terminal_columns(FILE *stream);

// Prints a line after `indent`. On a terminal it is broken between words where it would be wider
// than that; what follows is indented as much.
void terminal_wrap(FILE *stream, const char *indent, const char *text);

// The escape sequence of a paint, and the one that ends it; "" without colour.
const char *terminal_paint(bool colours, enum terminal_paint paint);
const char *terminal_unpaint(bool colours);

#endif
