// SPDX-License-Identifier: Apache-2.0
#include "judge/sums.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/inputs.h"
#include "plan/bias.h"

// A smaller unit than this is none: fp32 does not hold the digits of numbers like it.
#define SINK_UNIT_LEAST 1e-33

static bool has_sink(const struct cp_case *c)
{
    return c->training && c->softmax == SOFTMAX_LEARNABLE;
}

bool sums_has_bias(const struct cp_case *c)
{
    return c->training && c->bias != BIAS_NONE;
}

bool sums_has_heads(const struct cp_case *c)
{
    return c->max_logit || has_sink(c);
}

// ---- the gradient of the bias -------------------------------------------------------------------

struct sums_layout sums_layout(const struct cp_case *c, int rank)
{
    return (struct sums_layout){.heads = input_bias_dims(c).heads,
                                .rows = bias_rows(c, team_of(rank, 1)),
                                .columns = c->seqlen_kv};
}

static int64_t layout_elements(const struct sums_layout *l)
{
    return l->heads * l->rows * l->columns;
}

// The line in which the first query of a span stands, all heads counted.
static int64_t bias_line(const struct sums *s, const struct sums_layout *l, const struct span *span,
                         int head)
{
    int64_t row = bias_row_of(s->c, team_of(s->rank, 1), 0, span);
    return (l->heads > 1 ? head : 0) * l->rows + row;
}

// ---- memory -------------------------------------------------------------------------------------

static int64_t lines(const struct cp_case *c, int rank)
{
    int64_t most = sums_has_heads(c) ? c->heads : 0;
    if (sums_has_bias(c)) {
        struct sums_layout l = sums_layout(c, rank);
        int64_t of_bias = l.heads * l.rows;
        most = of_bias > most ? of_bias : most;
    }
    return most;
}

static int64_t parts_elements(const struct cp_case *c, int rank)
{
    return bias_is_whole(c) ? bias_share(c, rank).count * c->world_size : 0;
}

enum status sums_reserve(const struct cp_case *c, int rank, size_t *total, struct error *error)
{
    size_t sum = *total;
    enum status status = arena_add(&sum, lines(c, rank), sizeof(struct row_error), error);
    for (int r = 0; r < c->world_size && sums_has_heads(c) && status == STATUS_OK; r++)
        status = arena_add(&sum, SUMS_NUMBERS * (int64_t)c->heads, 8, error);
    if (sums_has_bias(c)) {
        struct sums_layout l = sums_layout(c, rank);
        if (status == STATUS_OK)
            status = arena_add(&sum, layout_elements(&l), 8, error);
        if (status == STATUS_OK)
            status = arena_add(&sum, parts_elements(c, rank), 8, error);
        if (status == STATUS_OK)
            status = arena_add(&sum, c->seqlen_kv, sizeof(float), error);
    }
    if (status == STATUS_OK)
        *total = sum;
    return status;
}

void sums_take(struct sums *s, const struct cp_case *c, int rank, struct arena *arena)
{
    *s = (struct sums){.c = c, .rank = rank};
    s->rows = arena_take(arena, lines(c, rank), sizeof(struct row_error));
    for (int r = 0; r < c->world_size && sums_has_heads(c); r++)
        s->heads[r] = arena_take(arena, SUMS_NUMBERS * (int64_t)c->heads, 8);
    for (int h = 0; h < c->heads && sums_has_heads(c); h++) {
        double *own = s->heads[rank];
        own[SUMS_MAX_LOGIT * c->heads + h] = -INFINITY;
        own[SUMS_DSINK * c->heads + h] = own[SUMS_SQUARES * c->heads + h] = 0;
    }
    if (!sums_has_bias(c))
        return;
    struct sums_layout l = sums_layout(c, rank);
    s->bias = arena_take(arena, layout_elements(&l), 8);
    s->bias_parts = arena_take(arena, parts_elements(c, rank), 8);
    s->got = arena_take(arena, c->seqlen_kv, sizeof(float));
    memset(s->bias, 0, (size_t)layout_elements(&l) * 8);
}

struct reference_sums sums_of(const struct sums *s, const struct span *span, int64_t first,
                              int head)
{
    const struct cp_case *c = s->c;
    struct reference_sums sums = {0};
    double *own = s->heads[s->rank];
    if (c->max_logit)
        sums.max_logit = own + SUMS_MAX_LOGIT * c->heads + head;
    if (has_sink(c)) {
        sums.dsink = own + SUMS_DSINK * c->heads + head;
        sums.dsink_squares = own + SUMS_SQUARES * c->heads + head;
    }
    if (sums_has_bias(c)) {
        struct sums_layout l = sums_layout(c, s->rank);
        int64_t line = bias_line(s, &l, span, head) + first * bias_row_step(c);
        sums.dbias = s->bias + line * l.columns;
        sums.dbias_stride = bias_row_step(c) * l.columns;
    }
    return sums;
}

// ---- the exchange -------------------------------------------------------------------------------

int sums_messages(const struct sums *s, int peer, struct message messages[SUMS_MESSAGES_MAX])
{
    const struct cp_case *c = s->c;
    int count = 0;
    if (sums_has_heads(c)) {
        size_t bytes = SUMS_NUMBERS * (size_t)c->heads * 8;
        messages[count++] = (struct message){peer, s->heads[s->rank], bytes, s->heads[peer], bytes};
    }
    if (!sums_has_bias(c) || !bias_is_whole(c))
        return count;
    struct bias_share own = bias_share(c, s->rank), theirs = bias_share(c, peer);
    messages[count++] = (struct message){
        .peer = peer,
        .send = s->bias + theirs.first,
        .send_bytes = (size_t)theirs.count * 8,
        .receive = s->bias_parts + peer * own.count,
        .receive_bytes = (size_t)own.count * 8,
    };
    return count;
}

// Elements of the dbias that this rank delivers: where they are, once the ranks are added up.
static double *bias_reduce(struct sums *s, struct bias_share share)
{
    double *own = s->bias + share.first;
    for (int rank = 0; rank < s->c->world_size && bias_is_whole(s->c); rank++)
        for (int64_t i = 0; i < share.count && rank != s->rank; i++)
            own[i] += s->bias_parts[rank * share.count + i];
    return own;
}

// ---- judging ------------------------------------------------------------------------------------

static double over_ranks(const struct cp_case *c, double *const *heads, int which, int head)
{
    double result = which == SUMS_MAX_LOGIT ? -INFINITY : 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        double value = heads[rank][which * c->heads + head];
        result = which == SUMS_MAX_LOGIT ? fmax(result, value) : result + value;
    }
    return result;
}

// The gradient of a head's sink is measured by the RMS of a sum of its terms if their signs were
// random: heads differ by orders of magnitude in how much their sinks weigh, and a large one shall
// not hide an error of a small one. Only the elementwise rule takes numbers as they are.
static double head_unit(const struct cp_case *c, double *const *heads, enum report_tensor tensor,
                        int head)
{
    double unit = tensor == TENSOR_DSINK ? sqrt(over_ranks(c, heads, SUMS_SQUARES, head)) : 1;
    return unit > SINK_UNIT_LEAST ? unit : SINK_UNIT_LEAST;
}

// What the figures say of numbers, as they are instead of measured.
static void number_restore(struct figures *f, int head, double got, double expected)
{
    double error = fabs(got - expected);
    if (isfinite(error) && error > f->max_abs)
        f->max_abs = error;
    if (f->mismatches == 0 || f->first_bad.head != head)
        return;
    f->first_bad_got = got;
    f->first_bad_expected = expected;
}

static struct figures number_judge(const struct cp_case *c, double *const *heads,
                                   enum report_tensor tensor, int which, const float *got,
                                   struct row_error *rows)
{
    struct figures_tally tally;
    figures_tally_init(&tally, figures_rule_sums(c, tensor, 1, c->heads, 1), tensor, 0, rows,
                       c->heads);
    for (int head = 0; head < c->heads; head++) {
        double unit = head_unit(c, heads, tensor, head);
        double expected = over_ranks(c, heads, which, head) / unit;
        float measured = (float)(got[head] / unit);
        figures_tally_row(&tally, head, (struct element){.head = head}, &measured, &expected, 1,
                          1 / unit);
    }
    int64_t worst = figures_tally_finish(&tally);
    tally.figures.worst_row = (struct element){.head = (int32_t)worst};
    tally.figures.max_abs = 0;
    for (int head = 0; head < c->heads; head++)
        number_restore(&tally.figures, head, got[head], over_ranks(c, heads, which, head));
    return tally.figures;
}

int sums_heads_judge(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                     const struct sums_results *results, struct row_error *rows,
                     struct figures figures[SUMS_TENSORS_MAX])
{
    int count = 0;
    if (results->max_logit)
        figures[count++] =
            number_judge(c, heads, TENSOR_MAX_LOGIT, SUMS_MAX_LOGIT, results->max_logit, rows);
    if (results->dsink)
        figures[count++] = number_judge(c, heads, TENSOR_DSINK, SUMS_DSINK, results->dsink, rows);
    return count;
}

// RMS of the dbias under a uniform softmax, all terms taken for independent.
static double bias_uniform(const struct cp_case *c, const struct sums_layout *l,
                           const struct sums_results *results)
{
    double squares = 0, elements = (double)layout_elements(l);
    if (bias_is_whole(c))
        for (int32_t i = 0; i < c->batch; i++) {
            struct span all = {.sequence = i, .len = case_length(c, SIDE_Q, i)};
            squares += figures_uniform_logits(c, &all);
        }
    else
        for (int i = 0; i < results->span_count; i++)
            squares += figures_uniform_logits(c, &results->spans[i]);
    return sqrt(c->heads * squares / (elements > 1 ? elements : 1));
}

struct figures_rule sums_bias_rule(const struct cp_case *c, int rank,
                                   const struct sums_results *results)
{
    struct sums_layout l = sums_layout(c, rank);
    return figures_rule_sums(c, TENSOR_DBIAS, bias_uniform(c, &l, results),
                             bias_share(c, rank).count, l.columns);
}

// Position of the t-th local token of a sequence.
static int64_t token_position(const struct cp_case *c, int rank, int32_t sequence, int64_t token)
{
    int chunks = shard_chunks_per_rank(c);
    int64_t begin = 0, end = 0;
    for (int i = 0; i < chunks; i++) {
        shard_chunk(case_occupied(c, SIDE_Q, sequence), chunks * c->world_size,
                    shard_chunk_of(c, rank, i), &begin, &end);
        if (token < end - begin)
            break;
        token -= end - begin;
    }
    return begin + token;
}

// Sequence and position of a row of the rank's tensors.
static struct element row_element(const struct cp_case *c, int rank, int64_t row)
{
    int32_t sequence = 0;
    if (c->format == FORMAT_SBHD) {
        sequence = (int32_t)(row % c->batch);
        row /= c->batch;
    } else {
        while (row >= shard_tokens(c, SIDE_Q, rank, sequence))
            row -= shard_tokens(c, SIDE_Q, rank, sequence++);
    }
    return (struct element){.sequence = sequence,
                            .position = token_position(c, rank, sequence, row)};
}

struct element sums_line_element(const struct cp_case *c, int rank, int64_t line)
{
    struct element e = {0};
    int64_t rows = sums_layout(c, rank).rows, row = line % rows;
    if (!bias_has_queries(c))
        e.sequence = (int32_t)row;
    else if (bias_has_batch(c))
        e = row_element(c, rank, row);
    else
        e.position = bias_is_whole(c) ? row : token_position(c, rank, 0, row);
    e.head = (int32_t)(line / rows);
    return e;
}

// A range of elements need not begin or end with a row.
static struct figures bias_judge(struct sums *s, const struct sums_results *results)
{
    const struct cp_case *c = s->c;
    struct sums_layout l = sums_layout(c, s->rank);
    struct figures_tally tally;
    struct bias_share share = bias_share(c, s->rank);
    int64_t begin = share.first, end = share.first + share.count;
    const double *expected = bias_reduce(s, share);
    int64_t first = share.count > 0 ? begin / l.columns : 0;
    int64_t behind = share.count > 0 ? (end + l.columns - 1) / l.columns : 0;
    figures_tally_init(&tally, sums_bias_rule(c, s->rank, results), TENSOR_DBIAS, 0, s->rows,
                       behind - first);
    for (int64_t at = begin; at < end;) {
        int64_t line = at / l.columns, count = (line + 1) * l.columns - at;
        if (count > end - at)
            count = end - at;
        dtype_read(c->dtype, results->dbias, at - begin, count, s->got);
        struct element where = sums_line_element(c, s->rank, line);
        where.dim = (int32_t)(at % l.columns);
        figures_tally_row(&tally, line - first, where, s->got, expected + (at - begin), (int)count,
                          1);
        at += count;
    }
    int64_t worst = figures_tally_finish(&tally);
    if (worst >= 0)
        tally.figures.worst_row = sums_line_element(c, s->rank, first + worst);
    return tally.figures;
}

int sums_judge(struct sums *s, const struct sums_results *results,
               struct figures figures[SUMS_TENSORS_MAX])
{
    int count = sums_heads_judge(s->c, s->heads, results, s->rows, figures);
    if (results->dbias)
        figures[count++] = bias_judge(s, results);
    return count;
}
