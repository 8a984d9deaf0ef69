// SPDX-License-Identifier: Apache-2.0
// Aligned tables on a stream. The one place that knows libsmartcols.
//
// Memory that runs short is remembered, and the table then says so instead of its rows.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_TABLE_H
#define CPATTN_CLIENT_SUBMIT_SHOW_TABLE_H

#include <stdio.h>

#include "client/submit/show/terminal.h"

struct table;

// `columns` are the headings, separated by spaces; one that begins with '>' is aligned to the
// right,
// '_' in it becomes a space. `stream` is borrowed. Returns NULL when memory is short; every
// function takes that NULL.
struct table *table_create(FILE *stream, const char *columns);
void table_destroy(struct table *table);

// Starts a row.
void table_row(struct table *table);

// Fills the next cell of the row.
void table_cell(struct table *table, enum terminal_paint paint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Writes the table, each line after `indent`; nothing where it has no row.
void table_print(struct table *table, const char *indent);

#endif
