// SPDX-License-Identifier: Apache-2.0
// Maps rows of the bias of a check to lines of sums (struct bias_lines).
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "plan/bias.h"

// True if the bias has one row for each position, which all sequences share.
static bool of_positions(const struct cp_case *c)
{
    return bias_has_queries(c) && !bias_has_batch(c);
}

// True if the bias has one row for each query.
static bool of_queries(const struct cp_case *c)
{
    return bias_has_queries(c) && bias_has_batch(c);
}

void bias_lines_fini(struct bias_lines *lines)
{
    free(lines->line_of_row);
    free(lines->line_of_position);
    free(lines->position_of_row);
    free(lines->line_of_query);
    *lines = (struct bias_lines){0};
}

static void sequences_make(const struct cp_case *c, struct bias_lines *lines)
{
    lines->rows = lines->lines = bias_has_batch(c) ? c->batch : 1;
    for (int64_t row = 0; row < lines->rows; row++)
        lines->line_of_row[row] = row;
}

static void queries_make(const struct rows *rows, struct bias_lines *lines)
{
    lines->rows = rows->count;
    lines->lines = rows->token_count;
    for (int64_t i = 0; i < rows->token_count; i++)
        lines->line_of_row[rows->order[i]] = i;
    memcpy(lines->line_of_query, lines->line_of_row, (size_t)rows->count * sizeof(int64_t));
}

// Numbers the positions of the check's queries: rows in order of first occurrence (thd: all
// positions, ascending), lines in ascending position. line_of_position[] first holds the row of
// each position, and at the end its line.
static void positions_make(const struct cp_case *c, const struct rows *rows,
                           struct bias_lines *lines)
{
    int64_t *of = lines->line_of_position;
    bool all = c->format == FORMAT_THD;
    for (int64_t i = 0; i < (all ? c->seqlen_q : rows->count); i++) {
        int64_t position = all ? i : rows->position[i];
        if (of[position] < 0)
            of[position] = lines->rows++;
    }
    for (int64_t position = 0; position < c->seqlen_q; position++)
        if (of[position] >= 0) {
            lines->position_of_row[of[position]] = position;
            lines->line_of_row[of[position]] = lines->lines;
            of[position] = lines->lines++;
        }
}

static int64_t *indices_alloc(int64_t count)
{
    int64_t *indices = malloc(((size_t)count + 1) * sizeof(*indices));
    if (indices)
        memset(indices, 0xff, ((size_t)count + 1) * sizeof(*indices));
    return indices;
}

enum status bias_lines_make(const struct cpattn_check *check, struct bias_lines *lines,
                            struct error *error)
{
    const struct cp_case *c = &check->c;
    const struct rows *rows = &check->rows[SIDE_Q];
    int64_t most = rows->count > c->seqlen_q ? rows->count : c->seqlen_q;
    *lines = (struct bias_lines){0};
    if (c->bias == BIAS_NONE)
        return STATUS_OK;
    lines->line_of_row = indices_alloc(most > c->batch ? most : c->batch);
    if (of_positions(c)) {
        lines->line_of_position = indices_alloc(c->seqlen_q);
        lines->position_of_row = indices_alloc(c->seqlen_q);
    }
    if (of_queries(c))
        lines->line_of_query = indices_alloc(rows->count);
    if (!lines->line_of_row ||
        (of_positions(c) && !(lines->line_of_position && lines->position_of_row)) ||
        (of_queries(c) && !lines->line_of_query)) {
        bias_lines_fini(lines);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the rows of the bias");
    }
    if (of_positions(c))
        positions_make(c, rows, lines);
    else if (of_queries(c))
        queries_make(rows, lines);
    else
        sequences_make(c, lines);
    return STATUS_OK;
}

int64_t bias_line_of(const struct cpattn_check *check, int32_t sequence, int64_t position,
                     int64_t row)
{
    const struct bias_lines *lines = &check->bias;
    if (lines->line_of_position)
        return lines->line_of_position[position];
    if (lines->line_of_query)
        return row >= 0 ? lines->line_of_query[row] : -1;
    return bias_has_batch(&check->c) ? sequence : 0;
}

struct element bias_row_element(const struct cpattn_check *check, int64_t row)
{
    const struct rows *rows = &check->rows[SIDE_Q];
    if (check->bias.line_of_position)
        return (struct element){.position = check->bias.position_of_row[row]};
    if (check->bias.line_of_query)
        return (struct element){.sequence = rows->sequence[row], .position = rows->position[row]};
    return (struct element){.sequence = (int32_t)row};
}
