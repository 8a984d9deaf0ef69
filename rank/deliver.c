// SPDX-License-Identifier: Apache-2.0
#include "rank/deliver.h"

#include <stdlib.h>
#include <string.h>

#include "judge/inputs.h"
#include "judge/totals.h"
#include "plan/bias.h"

// Size of the staging memory: limits how many consecutive rows are copied at once.
#define STAGING_BYTES ((int64_t)1 << 20)

struct delivery {
    struct engine *engine;
    const struct job *j;
    const struct cp_case *c;
    const struct segments *s;
    struct error *error;
};

static enum status put(const struct delivery *d, int64_t offset, const void *data, int64_t bytes)
{
    return segments_put(d->s, offset, data, (size_t)bytes, d->error);
}

static enum status no_memory(const struct delivery *d)
{
    return error_set(d->error, STATUS_RESOURCE_EXHAUSTED, "no memory for the delivery of results");
}

// Copies from the engine's memory.
static enum status fetch(const struct delivery *d, const void *from, int64_t bytes, void *to)
{
    if (!d->engine->ops->read)
        memcpy(to, from, (size_t)bytes);
    else if (bytes > 0 && !d->engine->ops->read(d->engine, from, (size_t)bytes, to))
        return error_set(d->error, STATUS_INTERNAL, "results cannot be read from the device");
    return STATUS_OK;
}

// ---- rows of tokens -----------------------------------------------------------------------------

// A tensor with one row per token.
struct rows {
    enum whole_tensor tensor;
    enum shard_side side;
    int64_t row_bytes;
    const char *local; // a result, in memory of the engine; NULL: an input, drawn or given
};

// Copies `count` rows to `staging`: consecutive tokens of a span, from its token `first` on.
static enum status rows_fetch(const struct delivery *d, const struct rows *r,
                              const struct span *span, int64_t first, int64_t count, char *staging)
{
    int64_t step = shard_row_step(d->c);
    if (r->local)
        return fetch(d, r->local + (span->row + first * step) * r->row_bytes, count * r->row_bytes,
                     staging);
    for (int64_t i = 0; i < count; i++)
        input_row(d->c, (enum input_tensor)(r->tensor + 1), span->sequence,
                  span->position + first + i, staging + i * r->row_bytes);
    return STATUS_OK;
}

// Delivers the rows of a span. Copies several rows at once if they are consecutive both on the rank
// and in the whole tensor (step 1).
static enum status span_put(const struct delivery *d, const struct rows *r, const struct span *span,
                            char *staging)
{
    int64_t step = whole_row_step(d->c), first = whole_row_first(d->c, r->side, span->sequence);
    int64_t most = step > 1 || r->row_bytes > STAGING_BYTES ? 1 : STAGING_BYTES / r->row_bytes;
    enum status status = STATUS_OK;
    for (int64_t done = 0, count; done < span->len && status == STATUS_OK; done += count) {
        count = span->len - done < most ? span->len - done : most;
        int64_t row = first + (span->position + done) * step;
        status = rows_fetch(d, r, span, done, count, staging);
        if (status == STATUS_OK)
            status = put(d, d->s->places.wanted[r->tensor] + row * r->row_bytes, staging,
                         count * r->row_bytes);
    }
    return status;
}

static enum status rows_put(const struct delivery *d, const struct rows *r)
{
    if (d->s->places.wanted[r->tensor] == PLACE_NONE)
        return STATUS_OK;
    char *staging = malloc((size_t)(STAGING_BYTES > r->row_bytes ? STAGING_BYTES : r->row_bytes));
    enum status status = staging ? STATUS_OK : no_memory(d);
    for (int i = 0; i < d->j->span_count[r->side] && status == STATUS_OK; i++)
        status = span_put(d, r, &d->j->spans[r->side][i], staging);
    free(staging);
    return status;
}

static enum status tokens_put(const struct delivery *d)
{
    const struct cp_case *c = d->c;
    const struct rank_results results = job_results(d->j);
    const int64_t element = case_element_bytes(c);
    const int64_t qk = c->head_dim_qk * element, v = c->head_dim_v * element;
    const struct rows list[] = {
        {WHOLE_Q, SIDE_Q, c->heads * qk, NULL},
        {WHOLE_K, SIDE_KV, c->kv_heads * qk, NULL},
        {WHOLE_V, SIDE_KV, c->kv_heads * v, NULL},
        {WHOLE_DO, SIDE_Q, c->heads * v, NULL},
        {WHOLE_OUT, SIDE_Q, c->heads * v, results.out},
        {WHOLE_DQ, SIDE_Q, c->heads * qk, results.dq},
        {WHOLE_DK, SIDE_KV, c->kv_heads * qk, results.dk},
        {WHOLE_DV, SIDE_KV, c->kv_heads * v, results.dv},
    };
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof(list) / sizeof(*list) && status == STATUS_OK; i++)
        status = rows_put(d, &list[i]);
    return status;
}

// ---- LSE ----------------------------------------------------------------------------------------

// Delivers the LSE of a span and head. `row`: the head's LSE on the rank; `line`: scratch.
static enum status lse_span_put(const struct delivery *d, const struct span *span, int head,
                                const float *row, float *line)
{
    const struct cp_case *c = d->c;
    int64_t step = shard_row_step(c), tokens = whole_rows(c, SIDE_Q);
    int64_t place = c->format == FORMAT_THD
                        ? head * tokens + whole_row_first(c, SIDE_Q, span->sequence)
                        : ((int64_t)span->sequence * c->heads + head) * c->seqlen_q;
    for (int64_t i = 0; i < span->len; i++)
        line[i] = row[span->row + i * step];
    return put(d, d->s->places.wanted[WHOLE_LSE] + (place + span->position) * 4, line,
               span->len * 4);
}

static enum status lse_put(const struct delivery *d)
{
    int64_t rows = shard_rows(d->c, SIDE_Q, d->j->rank);
    const float *lse = job_results(d->j).lse;
    if (d->s->places.wanted[WHOLE_LSE] == PLACE_NONE || rows == 0)
        return STATUS_OK;
    float *row = malloc((size_t)rows * 2 * sizeof(*row));
    enum status status = row ? STATUS_OK : no_memory(d);
    for (int head = 0; head < d->c->heads && status == STATUS_OK; head++) {
        status = fetch(d, lse + head * rows, rows * 4, row);
        for (int i = 0; i < d->j->span_count[SIDE_Q] && status == STATUS_OK; i++)
            status = lse_span_put(d, &d->j->spans[SIDE_Q][i], head, row, row + rows);
    }
    free(row);
    return status;
}

// ---- tensors without tokens ---------------------------------------------------------------------

// Delivers a result with one value per head. All ranks have the same values; rank 0 delivers them.
static enum status heads_put(const struct delivery *d, enum whole_tensor tensor, const float *local)
{
    int64_t bytes = d->c->heads * (int64_t)sizeof(float);
    float values[HEADS_MAX];
    if (d->s->places.wanted[tensor] == PLACE_NONE || d->j->rank != 0)
        return STATUS_OK;
    enum status status = fetch(d, local, bytes, values);
    return status == STATUS_OK ? put(d, d->s->places.wanted[tensor], values, bytes) : status;
}

static enum status sink_put(const struct delivery *d)
{
    float values[HEADS_MAX];
    if (d->s->places.wanted[WHOLE_SINK] == PLACE_NONE || d->j->rank != 0)
        return STATUS_OK;
    for (int head = 0; head < d->c->heads; head++)
        values[head] = input_sink(d->c, head);
    return put(d, d->s->places.wanted[WHOLE_SINK], values, d->c->heads * (int64_t)sizeof(float));
}

// Each rank delivers its share of the rows of the bias.
static enum status bias_put(const struct delivery *d, char *line)
{
    struct bias_dims dims = input_bias_dims(d->c);
    int64_t bytes = d->c->seqlen_kv * case_element_bytes(d->c), all = dims.heads * dims.rows;
    enum status status = STATUS_OK;
    for (int64_t i = d->j->rank; i < dims.batch * all && status == STATUS_OK;
         i += d->c->world_size) {
        input_bias_row(d->c, (int)(i / all), (int)(i % all / dims.rows), i % dims.rows, 0,
                       d->c->seqlen_kv, line);
        status = put(d, d->s->places.wanted[WHOLE_BIAS] + i * bytes, line, bytes);
    }
    return status;
}

// True if a line of the bias gradient (all keys of one query) belongs to a token, not to padding.
static bool line_exists(const struct cp_case *c, const struct element *where)
{
    if (where->sequence < 0 || where->sequence >= c->batch || where->position < 0)
        return false;
    if (!bias_has_queries(c))
        return true;
    return where->position <
           (bias_has_batch(c) ? case_length(c, SIDE_Q, where->sequence) : c->seqlen_q);
}

// Delivers the rank's share of the bias gradient, line by line. The share may begin or end within a
// line.
static enum status dbias_put(const struct delivery *d, char *line)
{
    const struct cp_case *c = d->c;
    struct bias_share share = bias_share(c, d->j->rank);
    const char *local = job_results(d->j).dbias;
    int64_t element = case_element_bytes(c), end = share.first + share.count;
    enum status status = STATUS_OK;
    for (int64_t at = share.first, count; at < end && status == STATUS_OK; at += count) {
        int64_t left = c->seqlen_kv - at % c->seqlen_kv;
        struct element where = totals_line_element(c, d->j->rank, at / c->seqlen_kv);
        count = left < end - at ? left : end - at;
        // Padding lines are not in the whole tensor.
        if (!line_exists(c, &where))
            continue;
        int64_t index = (int64_t)input_bias_index(c, where.sequence, where.head, where.position,
                                                  at % c->seqlen_kv);
        status = fetch(d, local + (at - share.first) * element, count * element, line);
        if (status == STATUS_OK)
            status =
                put(d, d->s->places.wanted[WHOLE_DBIAS] + index * element, line, count * element);
    }
    return status;
}

static enum status lines_put(const struct delivery *d)
{
    bool bias = d->s->places.wanted[WHOLE_BIAS] != PLACE_NONE;
    bool dbias = d->s->places.wanted[WHOLE_DBIAS] != PLACE_NONE;
    if (!bias && !dbias)
        return STATUS_OK;
    char *line = malloc((size_t)(d->c->seqlen_kv * case_element_bytes(d->c)) + 1);
    enum status status = line ? STATUS_OK : no_memory(d);
    if (status == STATUS_OK && bias)
        status = bias_put(d, line);
    if (status == STATUS_OK && dbias)
        status = dbias_put(d, line);
    free(line);
    return status;
}

// ---- delivery -----------------------------------------------------------------------------------

enum status deliver(struct engine *e, const struct job *j, const struct segments *s,
                    struct error *error)
{
    const struct delivery d = {.engine = e, .j = j, .c = j->c, .s = s, .error = error};
    const struct rank_results results = job_results(j);
    if (!s->wanted)
        return STATUS_OK;
    enum status status = tokens_put(&d);
    if (status == STATUS_OK)
        status = lse_put(&d);
    if (status == STATUS_OK)
        status = sink_put(&d);
    if (status == STATUS_OK)
        status = heads_put(&d, WHOLE_DSINK, results.dsink);
    if (status == STATUS_OK)
        status = heads_put(&d, WHOLE_MAX_LOGIT, results.max_logit);
    if (status == STATUS_OK)
        status = lines_put(&d);
    return status == STATUS_OK ? deliver_expected(j, s, error) : status;
}
