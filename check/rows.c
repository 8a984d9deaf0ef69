// SPDX-License-Identifier: Apache-2.0
// The tokens of a check.
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "plan/shard.h"

// ---- memory -------------------------------------------------------------------------------------

static int64_t tokens_before(const struct cp_case *c, enum shard_side side, int32_t sequence)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < sequence; i++)
        tokens += case_length(c, side, i);
    return tokens;
}

enum status rows_alloc(const struct cp_case *c, enum shard_side side, int64_t count,
                       struct rows *rows, struct error *error)
{
    size_t n = (size_t)count + 1, tokens = (size_t)tokens_before(c, side, c->batch);
    *rows = (struct rows){.count = count,
                          .sequence = calloc(n, sizeof(*rows->sequence)),
                          .position = calloc(n, sizeof(*rows->position)),
                          .chunk = calloc(n, sizeof(*rows->chunk)),
                          .order = calloc(n, sizeof(*rows->order)),
                          .row_of = malloc((tokens + 1) * sizeof(*rows->row_of))};
    if (rows->sequence && rows->position && rows->chunk && rows->order && rows->row_of) {
        memset(rows->row_of, 0xff, (tokens + 1) * sizeof(*rows->row_of));
        return STATUS_OK;
    }
    rows_fini(rows);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %lld rows", (long long)count);
}

void rows_fini(struct rows *rows)
{
    free(rows->sequence);
    free(rows->position);
    free(rows->chunk);
    free(rows->order);
    free(rows->row_of);
    *rows = (struct rows){0};
}

// ---- order --------------------------------------------------------------------------------------

static int rows_compare(const void *a, const void *b, void *context)
{
    const struct rows *rows = context;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    if (rows->chunk[x] != rows->chunk[y])
        return rows->chunk[x] < rows->chunk[y] ? -1 : 1;
    if (rows->sequence[x] != rows->sequence[y])
        return rows->sequence[x] < rows->sequence[y] ? -1 : 1;
    if (rows->position[x] != rows->position[y])
        return rows->position[x] < rows->position[y] ? -1 : 1;
    return 0;
}

// Compares rows by sequence and position, but not by chunk.
static int padding_compare(const void *a, const void *b, void *context)
{
    const struct rows *rows = context;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    if (rows->sequence[x] != rows->sequence[y])
        return rows->sequence[x] < rows->sequence[y] ? -1 : 1;
    return (rows->position[x] > rows->position[y]) - (rows->position[x] < rows->position[y]);
}

static enum status same_token(const struct rows *rows, int64_t a, int64_t b, struct error *error)
{
    int64_t first = a < b ? a : b, second = a < b ? b : a;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "rows %lld and %lld are the same token: position %lld of sequence %d",
                     (long long)first, (long long)second, (long long)rows->position[first],
                     rows->sequence[first]);
}

// Fills row_of[]. INVALID_ARGUMENT, with the two rows, if a token occurs twice.
static enum status rows_index(const struct cp_case *c, enum shard_side side, struct rows *rows,
                              struct error *error)
{
    int32_t sequence = -1;
    int64_t first = 0;
    for (int64_t i = 0; i < rows->token_count; i++) {
        int64_t row = rows->order[i];
        if (rows->sequence[row] != sequence) {
            sequence = rows->sequence[row];
            first = tokens_before(c, side, sequence);
        }
        int64_t *at = &rows->row_of[first + rows->position[row]];
        if (*at >= 0)
            return same_token(rows, *at, row, error);
        *at = row;
    }
    return STATUS_OK;
}

// The same for padding, which has no row_of[].
static enum status padding_check(struct rows *rows, struct error *error)
{
    for (int64_t i = rows->token_count + 1; i < rows->count; i++) {
        const int64_t *pair = &rows->order[i - 1];
        if (padding_compare(&pair[0], &pair[1], rows) == 0)
            return same_token(rows, pair[0], pair[1], error);
    }
    return STATUS_OK;
}

enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error)
{
    int64_t behind = rows->count;
    rows->token_count = 0;
    for (int64_t row = 0; row < rows->count; row++) {
        bool token = rows->position[row] < case_length(c, side, rows->sequence[row]);
        rows->order[token ? rows->token_count++ : --behind] = row;
    }
    qsort_r(rows->order, (size_t)rows->token_count, sizeof(*rows->order), rows_compare, rows);
    qsort_r(rows->order + behind, (size_t)(rows->count - behind), sizeof(*rows->order),
            padding_compare, rows);
    enum status status = rows_index(c, side, rows, error);
    return status == STATUS_OK ? padding_check(rows, error) : status;
}

static void spans_place(const struct cp_case *c, const struct span *spans, int count,
                        struct rows *rows)
{
    int64_t step = shard_row_step(c);
    for (int i = 0; i < count; i++)
        for (int64_t token = 0; token < spans[i].len; token++) {
            int64_t row = spans[i].row + token * step;
            rows->sequence[row] = spans[i].sequence;
            rows->position[row] = spans[i].position + token;
            rows->chunk[row] = spans[i].chunk;
        }
}

enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error)
{
    struct span *spans = calloc((size_t)shard_spans_max(c) + 1, sizeof(*spans));
    if (!spans)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d spans",
                         shard_spans_max(c));
    enum status status = rows_alloc(c, side, shard_rows(c, side, rank), rows, error);
    if (status == STATUS_OK) {
        spans_place(c, spans, shard_spans(c, side, rank, spans), rows);
        spans_place(c, spans, shard_padding(c, side, rank, spans), rows);
        status = rows_order(c, side, rows, error);
    }
    free(spans);
    return status;
}

// ---- lookups ------------------------------------------------------------------------------------

int64_t row_of_token(const struct cpattn_check *check, enum shard_side side, int32_t sequence,
                     int64_t position)
{
    return check->rows[side].row_of[check->first[side][sequence] + position];
}

bool row_is_padding(const struct cpattn_check *check, enum shard_side side, int64_t row)
{
    const struct rows *rows = &check->rows[side];
    return rows->position[row] >= case_length(&check->c, side, rows->sequence[row]);
}

// ---- spans --------------------------------------------------------------------------------------

// True if row order[i] is the token after row order[i - 1] in the same chunk and sequence.
static bool continues(const struct rows *rows, int64_t i)
{
    int64_t row = rows->order[i], before = rows->order[i - 1];
    return rows->chunk[row] == rows->chunk[before] &&
           rows->sequence[row] == rows->sequence[before] &&
           rows->position[row] == rows->position[before] + 1;
}

static void spans_of_rows(const struct rows *rows, int64_t row_step, struct span *spans, int *count)
{
    *count = 0;
    for (int64_t i = 0; i < rows->token_count; i++) {
        int64_t row = rows->order[i];
        if (i > 0 && continues(rows, i))
            spans[*count - 1].len++;
        else
            spans[(*count)++] = (struct span){.sequence = rows->sequence[row],
                                              .chunk = rows->chunk[row],
                                              .row = i * row_step,
                                              .len = 1,
                                              .position = rows->position[row]};
    }
}

struct span *spans_of_check(const struct cpattn_check *check, enum shard_side side,
                            int64_t row_step, int *count)
{
    const struct rows *rows = &check->rows[side];
    int64_t most = check->placed ? rows->token_count : shard_spans_max(&check->c);
    struct span *spans = calloc((size_t)most + 1, sizeof(*spans));
    if (spans && check->placed)
        spans_of_rows(rows, row_step, spans, count);
    else if (spans)
        *count = shard_spans(&check->c, side, check->rank, spans);
    return spans;
}
