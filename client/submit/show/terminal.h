// SPDX-License-Identifier: Apache-2.0
// Properties of a stream: terminal, colour, width.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_TERMINAL_H
#define CPATTN_CLIENT_SUBMIT_SHOW_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum terminal_paint { PAINT_PLAIN, PAINT_GOOD, PAINT_BAD, PAINT_WARN, PAINT_DIM, PAINT_BOLD };

// True if `stream` is a terminal.
bool terminal_is(FILE *stream);

// True if lines can be redrawn: a terminal with a TERM that is not "dumb".
bool terminal_redraws(FILE *stream);

// True if colours are used: lines can be redrawn, and NO_COLOR is unset or empty.
bool terminal_colours(FILE *stream);

// Columns of the terminal; 80 if unknown.
int terminal_columns(FILE *stream);

// Prints a line after `indent`. On a terminal it is broken between words to fit the width; the
// following lines have the same indent.
void terminal_wrap(FILE *stream, const char *indent, const char *text);

// The escape sequence of a paint, and the one that ends it; "" without colour.
const char *terminal_paint(bool colours, enum terminal_paint paint);
const char *terminal_unpaint(bool colours);

#endif
