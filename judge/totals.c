// SPDX-License-Identifier: Apache-2.0
#include "judge/totals.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/tally.h"
#include "plan/bias.h"

bool totals_has_sink(const struct cp_case *c)
{
    return c->training && c->softmax == SOFTMAX_LEARNABLE;
}

bool totals_has_bias(const struct cp_case *c)
{
    return c->training && c->bias != BIAS_NONE;
}

bool totals_has_heads(const struct cp_case *c)
{
    return c->max_logit || totals_has_sink(c) || totals_has_bias(c);
}

// ---- the gradient of the bias -------------------------------------------------------------------

struct totals_layout totals_layout(const struct cp_case *c, int rank)
{
    return (struct totals_layout){.heads = input_bias_dims(c).heads,
                                  .rows = bias_rows(c, team_of(rank, 1)),
                                  .columns = c->seqlen_kv};
}

static int64_t layout_elements(const struct totals_layout *l)
{
    return l->heads * l->rows * l->columns;
}

// The line [head][row] of dbias to which the first query of a span belongs, counted over all heads.
static int64_t bias_line(const struct totals *t, const struct totals_layout *l,
                         const struct span *span, int head)
{
    int64_t row = bias_row_of(t->c, team_of(t->rank, 1), 0, span);
    return (l->heads > 1 ? head : 0) * l->rows + row;
}

// The lines that contain elements that this rank delivers.
struct lines {
    int64_t begin, end;
};

static struct lines share_lines(struct bias_share share, int64_t columns)
{
    if (share.count == 0)
        return (struct lines){0, 0};
    return (struct lines){share.first / columns,
                          (share.first + share.count + columns - 1) / columns};
}

// ---- memory -------------------------------------------------------------------------------------

static int64_t parts_elements(const struct cp_case *c, int rank)
{
    return bias_is_whole(c) ? bias_share(c, rank).count * c->world_size : 0;
}

static enum status reserve_bias(const struct cp_case *c, int rank, size_t *total,
                                struct error *error)
{
    struct totals_layout l = totals_layout(c, rank);
    struct lines lines = share_lines(bias_share(c, rank), l.columns);
    int64_t count = lines.end - lines.begin;
    const struct {
        int64_t count, size;
    } pieces[] = {{layout_elements(&l), 8},           {layout_elements(&l), 8},
                  {parts_elements(c, rank), 8},       {parts_elements(c, rank), 8},
                  {l.columns, sizeof(float)},         {l.columns, sizeof(float)},
                  {count * l.columns, sizeof(float)}, {count, sizeof(float)}};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces) && status == STATUS_OK; i++)
        status = arena_add(total, pieces[i].count, pieces[i].size, error);
    return status;
}

enum status totals_reserve(const struct cp_case *c, int rank, size_t *total, struct error *error)
{
    size_t sum = *total;
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && totals_has_heads(c) && status == STATUS_OK; r++)
        status = arena_add(&sum, TOTALS_NUMBERS * (int64_t)c->heads, 8, error);
    if (totals_has_bias(c) && status == STATUS_OK)
        status = reserve_bias(c, rank, &sum, error);
    if (status == STATUS_OK)
        *total = sum;
    return status;
}

static void take_bias(struct totals *t, struct arena *arena)
{
    struct totals_layout l = totals_layout(t->c, t->rank);
    struct lines lines = share_lines(bias_share(t->c, t->rank), l.columns);
    int64_t count = lines.end - lines.begin;
    t->bias = arena_take(arena, layout_elements(&l), 8);
    t->bias_twin = arena_take(arena, layout_elements(&l), 8);
    t->bias_parts = arena_take(arena, parts_elements(t->c, t->rank), 8);
    t->bias_twins = arena_take(arena, parts_elements(t->c, t->rank), 8);
    t->got = arena_take(arena, l.columns, sizeof(float));
    t->twin_row = arena_take(arena, l.columns, sizeof(float));
    t->errors = arena_take(arena, count * l.columns, sizeof(float));
    t->twins = arena_take(arena, count, sizeof(float));
    memset(t->bias, 0, (size_t)layout_elements(&l) * 8);
    memset(t->bias_twin, 0, (size_t)layout_elements(&l) * 8);
}

void totals_take(struct totals *t, const struct cp_case *c, int rank, struct arena *arena)
{
    *t = (struct totals){.c = c, .rank = rank};
    for (int r = 0; r < c->world_size && totals_has_heads(c); r++)
        t->heads[r] = arena_take(arena, TOTALS_NUMBERS * (int64_t)c->heads, 8);
    for (int i = 0; i < TOTALS_NUMBERS * c->heads && totals_has_heads(c); i++)
        t->heads[rank][i] = i / c->heads == TOTALS_MAX_LOGIT ? -INFINITY : 0;
    if (totals_has_bias(c))
        take_bias(t, arena);
}

struct expected_sums totals_of(const struct totals *t, const struct span *span, int64_t first,
                               int head)
{
    const struct cp_case *c = t->c;
    struct expected_sums sums = {0};
    double *own = t->heads[t->rank];
    if (c->max_logit)
        sums.max_logit = own + TOTALS_MAX_LOGIT * c->heads + head;
    if (totals_has_sink(c)) {
        sums.dsink = own + TOTALS_DSINK * c->heads + head;
        sums.dsink_twin_squares = own + TOTALS_SINK_TWIN * c->heads + head;
        sums.dsink_terms = own + TOTALS_SINK_TERMS * c->heads + head;
    }
    if (totals_has_bias(c)) {
        struct totals_layout l = totals_layout(c, t->rank);
        int64_t line = bias_line(t, &l, span, head) + first * bias_row_step(c);
        sums.dbias = t->bias + line * l.columns;
        sums.dbias_twin = t->bias_twin + line * l.columns;
        sums.dbias_stride = bias_row_step(c) * l.columns;
        sums.dbias_terms = own + TOTALS_BIAS_TERMS * c->heads + head;
    }
    return sums;
}

// ---- the exchange -------------------------------------------------------------------------------

int totals_messages(const struct totals *t, int peer, struct message messages[TOTALS_MESSAGES_MAX])
{
    const struct cp_case *c = t->c;
    int count = 0;
    if (totals_has_heads(c)) {
        size_t bytes = TOTALS_NUMBERS * (size_t)c->heads * 8;
        messages[count++] = (struct message){peer, t->heads[t->rank], bytes, t->heads[peer], bytes};
    }
    if (!totals_has_bias(c) || !bias_is_whole(c))
        return count;
    struct bias_share own = bias_share(c, t->rank), theirs = bias_share(c, peer);
    size_t send = (size_t)theirs.count * 8, receive = (size_t)own.count * 8;
    messages[count++] = (struct message){peer, t->bias + theirs.first, send,
                                         t->bias_parts + peer * own.count, receive};
    messages[count++] = (struct message){peer, t->bias_twin + theirs.first, send,
                                         t->bias_twins + peer * own.count, receive};
    return count;
}

// Adds the other ranks' parts of the elements that this rank delivers.
static void bias_reduce(const struct totals *t, struct bias_share share, double *own,
                        const double *parts)
{
    for (int rank = 0; rank < t->c->world_size && bias_is_whole(t->c); rank++)
        for (int64_t i = 0; i < share.count && rank != t->rank; i++)
            own[share.first + i] += parts[rank * share.count + i];
}

// ---- numbers of heads ---------------------------------------------------------------------------

static double over_ranks(const struct cp_case *c, double *const *heads, int which, int head)
{
    double result = which == TOTALS_MAX_LOGIT ? -INFINITY : 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        double value = heads[rank][which * c->heads + head];
        result = which == TOTALS_MAX_LOGIT ? fmax(result, value) : result + value;
    }
    return result;
}

struct figures totals_judge_max_logit(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                      const float *got, bool sampled)
{
    float errors[HEADS_MAX], admitted[HEADS_MAX];
    struct tally tally;
    tally_init(&tally, rules_of(c, TENSOR_MAX_LOGIT), TENSOR_MAX_LOGIT, 0, 1, errors, admitted);
    for (int head = 0; head < c->heads; head++) {
        double reference = over_ranks(c, heads, TOTALS_MAX_LOGIT, head);
        if (sampled && isfinite(got[head]) && got[head] > reference)
            reference = got[head];
        tally_row(&tally, &got[head], &(struct tally_expected){.reference = &reference}, 1);
    }
    tally_turn(&tally);
    for (int head = 0; head < c->heads; head++)
        tally_row_again(&tally, &got[head], (struct element){.head = head}, 1);
    tally_finish(&tally);
    tally.figures.elements = c->heads;
    return tally.figures;
}

// Number of queries of a sequence that see a key.
static int64_t queries_seeing(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = case_band(c, sequence);
    int64_t first = band.shift - band.right;
    int64_t end = case_length(c, SIDE_KV, sequence) + band.shift + band.left;
    int64_t queries = case_length(c, SIDE_Q, sequence);
    first = first < 0 ? 0 : first;
    end = end > queries ? queries : end;
    return case_length(c, SIDE_KV, sequence) > 0 && end > first ? end - first : 0;
}

static int64_t all_queries(const struct cp_case *c)
{
    int64_t queries = 0;
    for (int32_t i = 0; i < c->batch; i++)
        queries += queries_seeing(c, i);
    return queries;
}

// The weights of sinks differ by orders of magnitude between heads, so each head has its own unit.
struct figures totals_judge_dsink(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                  const float *got)
{
    struct rules rules = rules_of(c, TENSOR_DSINK);
    struct rules_sinks sums = {0};
    struct figures f = {.tensor = TENSOR_DSINK, .elements = c->heads, .first_bad.position = -1};
    int64_t queries = all_queries(c);
    for (int head = 0; head < c->heads; head++) {
        struct rules_sink s = {.reference = over_ranks(c, heads, TOTALS_DSINK, head),
                               .twin_squares = over_ranks(c, heads, TOTALS_SINK_TWIN, head),
                               .term_squares = over_ranks(c, heads, TOTALS_SINK_TERMS, head),
                               .queries = queries};
        int place = rules_sinks_add(&rules, &sums, &s, got[head]);
        if (place & RULES_WORST)
            f.worst_row = (struct element){.head = head};
        if (place & RULES_FIRST_BAD) {
            f.first_bad = (struct element){.head = head};
            f.first_bad_got = got[head];
            f.first_bad_expected = s.reference;
        }
    }
    rules_sinks_finish(&rules, &sums, &f);
    return f;
}

// ---- places -------------------------------------------------------------------------------------

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

struct element totals_line_element(const struct cp_case *c, int rank, int64_t line)
{
    struct element e = {0};
    int64_t rows = totals_layout(c, rank).rows, row = line % rows;
    if (!bias_has_queries(c))
        e.sequence = (int32_t)row;
    else if (bias_has_batch(c))
        e = row_element(c, rank, row);
    else
        e.position = bias_is_whole(c) ? row : token_position(c, rank, 0, row);
    e.head = (int32_t)(line / rows);
    return e;
}

// ---- judging ------------------------------------------------------------------------------------

double totals_bias_terms(const struct cp_case *c, int rank, double *const heads[WORLD_SIZE_MAX])
{
    double squares = 0, elements;
    for (int r = 0; r < c->world_size; r++)
        for (int head = 0; head < c->heads && (bias_is_whole(c) || r == rank); head++)
            squares += heads[r][TOTALS_BIAS_TERMS * c->heads + head];
    struct totals_layout l = totals_layout(c, rank);
    elements = (double)layout_elements(&l);
    return sqrt(squares / (elements > 1 ? elements : 1));
}

// Runs the first pass, or the second one (`again`), over the lines of the rank's share of dbias.
// The first and the last line may be incomplete.
static void bias_pass(const struct totals *t, const void *dbias, double terms, bool again,
                      struct tally *tally)
{
    const struct cp_case *c = t->c;
    struct bias_share share = bias_share(c, t->rank);
    int64_t begin = share.first, end = share.first + share.count, columns = c->seqlen_kv;
    for (int64_t at = begin; at < end;) {
        int64_t line = at / columns, count = (line + 1) * columns - at;
        count = count > end - at ? end - at : count;
        struct element where = totals_line_element(c, t->rank, line);
        where.dim = (int32_t)(at % columns);
        dtype_read(c->dtype, dbias, at - begin, count, t->got);
        for (int64_t i = 0; i < count; i++)
            t->twin_row[i] = (float)t->bias_twin[at + i];
        dtype_round(c->dtype, t->twin_row, count);
        struct tally_expected e = {
            .reference = t->bias + at, .twin = t->twin_row, .terms = terms, .sparse = true};
        if (again)
            tally_row_again(tally, t->got, where, (int)count);
        else
            tally_row(tally, t->got, &e, (int)count);
        at += count;
    }
}

static struct figures bias_judge(struct totals *t, const void *dbias)
{
    struct bias_share share = bias_share(t->c, t->rank);
    double terms = totals_bias_terms(t->c, t->rank, t->heads);
    struct tally tally;
    bias_reduce(t, share, t->bias, t->bias_parts);
    bias_reduce(t, share, t->bias_twin, t->bias_twins);
    tally_init(&tally, rules_of(t->c, TENSOR_DBIAS), TENSOR_DBIAS, 0, (int)t->c->seqlen_kv,
               t->errors, t->twins);
    bias_pass(t, dbias, terms, false, &tally);
    tally_turn(&tally);
    bias_pass(t, dbias, terms, true, &tally);
    tally_finish(&tally);
    tally.figures.worst_row.dim = 0;
    tally.figures.elements = share.count;
    return tally.figures;
}

int totals_judge(struct totals *t, const struct totals_results *results, bool sampled,
                 struct figures figures[TOTALS_TENSORS_MAX])
{
    int count = 0;
    if (results->max_logit)
        figures[count++] = totals_judge_max_logit(t->c, t->heads, results->max_logit, sampled);
    if (results->dsink)
        figures[count++] = totals_judge_dsink(t->c, t->heads, results->dsink);
    if (results->dbias)
        figures[count++] = bias_judge(t, results->dbias);
    return count;
}
