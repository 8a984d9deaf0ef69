// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/table.h"

#include <libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HEADING_MAX 32
#define CELL_MAX    1024

struct table {
    struct libscols_table *scols;
    struct libscols_line *line;
    FILE *stream;
    int column; // the next cell's
    bool colours;
    bool failed;
};

static void add_column(struct table *table, const char *word, size_t length)
{
    char heading[HEADING_MAX];
    bool right = *word == '>';
    snprintf(heading, sizeof(heading), "%.*s", (int)(length - right), word + right);
    for (char *c = heading; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    if (!scols_table_new_column(table->scols, heading, 0, right ? SCOLS_FL_RIGHT : 0))
        table->failed = true;
}

struct table *table_create(FILE *stream, const char *columns)
{
    struct table *table = calloc(1, sizeof(*table));
    if (!table)
        return NULL;
    table->stream = stream;
    table->colours = terminal_colours(stream);
    table->scols = scols_new_table();
    if (!table->scols) {
        free(table);
        return NULL;
    }
    scols_table_set_stream(table->scols, stream);
    scols_table_set_termforce(table->scols, SCOLS_TERMFORCE_NEVER); // never cut a cell
    scols_table_set_column_separator(table->scols, "  ");
    scols_table_enable_colors(table->scols, table->colours);
    for (const char *word = columns; *word;) {
        size_t length = strcspn(word, " ");
        add_column(table, word, length);
        word += length + strspn(word + length, " ");
    }
    return table;
}

void table_destroy(struct table *table)
{
    if (!table)
        return;
    scols_unref_table(table->scols);
    free(table);
}

void table_row(struct table *table)
{
    if (!table)
        return;
    table->column = 0;
    table->line = scols_table_new_line(table->scols, NULL);
    if (!table->line)
        table->failed = true;
}

void table_cell(struct table *table, enum terminal_paint paint, const char *format, ...)
{
    if (!table || table->failed)
        return;
    char text[CELL_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct libscols_cell *cell = scols_line_get_cell(table->line, (size_t)table->column++);
    if (!cell || scols_cell_set_data(cell, text) != 0)
        table->failed = true;
    else if (table->colours && paint != PAINT_PLAIN)
        scols_cell_set_color(cell, terminal_paint(true, paint));
}

void table_print(struct table *table, const char *indent)
{
    char *text = NULL;
    if (table && scols_table_get_nlines(table->scols) == 0)
        return;
    if (!table || table->failed || scols_print_table_to_string(table->scols, &text) != 0) {
        fputs("(not enough memory for the table)\n", table ? table->stream : stdout);
        return;
    }
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(table->stream, "%s%.*s\n", indent, (int)length, line);
        line += length + (line[length] == '\n');
    }
    free(text);
}
