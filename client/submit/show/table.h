// SPDX-License-Identifier: Apache-2.0
// Aligned tables on a stream. Only table.c uses libsmartcols.
//
// If memory runs short, the table prints a message instead of its rows.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_TABLE_H
#define CPATTN_CLIENT_SUBMIT_SHOW_TABLE_H

#include <stdio.h>

#include "client/submit/show/terminal.h"

struct table;

// `columns` are the headings, separated by spaces; a column whose heading begins with '>' is
// aligned to the right, '_' becomes a space. `stream` is borrowed. Returns NULL when memory is
// short; every function takes that NULL.
struct table *table_create(FILE *stream, const char *columns);
void table_destroy(struct table *table);

// Starts a row.
void table_row(struct table *table);

// Fills the next cell of the row.
void table_cell(struct table *table, enum terminal_paint paint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Writes the table, each line after `indent`; nothing if it has no rows.
void table_print(struct table *table, const char *indent);

#endif
