// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/statistics.h"
#include "judge/diagnosis/trial.h"
#include "judge/inputs.h"
#include "plan/bias.h"

// Maximum number of pairs of a query and a key that are computed, over all sequences and heads.
#define SUMS_PAIRS_MAX (INT64_C(1) << 24)

// Parts of a sum, each [rows][dim]: one for each rank, which computes it, and PARTS_MORE others.
// local: from pairs whose query and key are held by the same team of ranks. Only of dbias: the
// parts of the last query, of the last sequence and of the last head.
#define PARTS_MORE 4
struct parts {
    int count;
    double *values;
    double *local, *last, *sequence, *head;
};

static double *part_of(const struct trial *t, const struct parts *x, int part)
{
    return x->values + (int64_t)part * t->rows * t->dim;
}

static bool parts_init(struct parts *x, const struct trial *t, double start)
{
    int64_t n = (int64_t)t->rows * t->dim;
    x->count = t->c->world_size;
    x->values = calloc((size_t)(n * (x->count + PARTS_MORE)), sizeof(double));
    if (!x->values)
        return false;
    for (int64_t i = 0; i < n * (x->count + PARTS_MORE); i++)
        x->values[i] = start;
    x->local = part_of(t, x, x->count);
    x->last = part_of(t, x, x->count + 1);
    x->sequence = part_of(t, x, x->count + 2);
    x->head = part_of(t, x, x->count + 3);
    return true;
}

static double combine(bool largest, double a, double b)
{
    return largest ? fmax(a, b) : a + b;
}

// Fills `values` with the sum of all ranks' parts except one (-1: of all), or with this part alone.
// Largest logits have a maximum instead of a sum.
static void parts_but(const struct trial *t, const struct parts *x, int left_out, bool alone,
                      double *values)
{
    int64_t n = (int64_t)t->rows * t->dim;
    bool largest = t->in->tensor == TENSOR_MAX_LOGIT;
    for (int64_t at = 0; at < n; at++) {
        double sum = largest ? -INFINITY : 0;
        for (int part = 0; part < x->count; part++)
            if ((part == left_out) == alone)
                sum = combine(largest, sum, part_of(t, x, part)[at]);
        values[at] = sum;
    }
}

// ---- hypotheses ---------------------------------------------------------------------------------

static void try_ranks(struct trial *t, const struct parts *x)
{
    const char *name = report_tensor_name(t->in->tensor);
    for (int rank = 0; rank < x->count && x->count > 1; rank++) {
        parts_but(t, x, rank, false, t->tried);
        trial_offer(t, DIAGNOSIS_SUM, t->tried, "%s lacks the part of rank %d", name, rank);
        parts_but(t, x, rank, true, t->tried);
        trial_offer(t, DIAGNOSIS_SUM, t->tried, "%s is the part of rank %d only", name, rank);
        for (int at = 0; at < t->rows * t->dim; at++)
            t->tried[at] = t->right[at] + part_of(t, x, rank)[at];
        if (t->in->tensor != TENSOR_MAX_LOGIT)
            trial_offer(t, DIAGNOSIS_SUM, t->tried, "%s has the part of rank %d twice", name, rank);
    }
}

static void try_sign(struct trial *t)
{
    for (int at = 0; at < t->rows * t->dim; at++)
        t->tried[at] = -t->right[at];
    trial_offer(t, t->in->tensor == TENSOR_DSINK ? DIAGNOSIS_SINK_GRADIENT : DIAGNOSIS_FACTOR,
                t->tried, "%s has the wrong sign", report_tensor_name(t->in->tensor));
}

static void try_base(struct trial *t)
{
    for (int base = 0; base < 2; base++) {
        for (int at = 0; at < t->rows * t->dim; at++)
            t->tried[at] = t->right[at] * (base ? M_LOG2E : M_LN2);
        trial_offer(t, DIAGNOSIS_LSE, t->tried,
                    base ? "%s is %.6g times what it should be: for powers of 2 instead of e"
                         : "%s is %.6g times what it should be: scaled from base 2 to e twice",
                    report_tensor_name(t->in->tensor), base ? M_LOG2E : M_LN2);
    }
}

// Tries elements of dbias that are zero although their right values are above the noise.
static void try_zeros(struct trial *t)
{
    int n = t->rows * t->dim, zeros = 0, first = -1;
    double noise = sqrt(t->noise / n);
    for (int at = 0; at < n; at++) {
        bool lost = t->got[at] == 0 && fabs(t->right[at]) > 4 * noise;
        t->tried[at] = lost ? 0 : t->right[at];
        first = lost && first < 0 ? at : first;
        zeros += lost;
    }
    if (zeros > 0)
        trial_offer(t, DIAGNOSIS_ZERO, t->tried,
                    "dbias is zero in %d of %d examined elements, such as head %d, query %lld, "
                    "key %d",
                    zeros, n, t->in->rows[first / t->dim].head,
                    (long long)t->in->rows[first / t->dim].position, first % t->dim);
}

// Tries values that are overwritten instead of accumulated.
static void try_last(struct trial *t, const struct parts *x)
{
    const struct cp_case *c = t->c;
    if (!bias_has_batch(c) && c->batch > 1)
        trial_offer(t, DIAGNOSIS_SUM, x->sequence,
                    "dbias is the value of the last sequence only, not the sum over sequences");
    if (!bias_has_heads(c) && c->heads > 1)
        trial_offer(t, DIAGNOSIS_SUM, x->head,
                    "dbias is the value of the last head only, not the sum over heads");
    if (!bias_has_queries(c))
        trial_offer(t, DIAGNOSIS_SUM, x->last,
                    "dbias is the value of the last query only, not the sum over queries");
    else if (!bias_has_batch(c) && !bias_has_heads(c))
        trial_offer(t, DIAGNOSIS_SUM, x->last,
                    "dbias is the value of the last sequence and head only, not the sum over them");
}

// Adds column i of dS, for the position i of each row, to the rows of t->tried.
static void columns_add(struct trial *t, const struct panel *p)
{
    const struct cp_case *c = t->c;
    for (int row = 0; row < t->rows; row++) {
        const struct diagnosis_row *given = &t->in->rows[row];
        if ((bias_has_batch(c) && p->setup.sequence != given->sequence) ||
            (bias_has_heads(c) && p->setup.head != given->head) || given->position >= p->keys)
            continue;
        for (int i = 0; i < p->rows; i++) {
            int64_t key = p->setup.positions[i];
            if (key >= given->first && key < given->first + given->count)
                t->tried[row * t->dim + key] += p->ds[i * p->columns + given->position];
        }
    }
}

// Tries rows that are columns. It takes dS of all queries.
static void try_transposed(struct trial *t)
{
    const struct cp_case *c = t->c;
    struct sweep s;
    int64_t pairs = c->seqlen_q * c->seqlen_kv;
    if (!bias_has_queries(c) || pairs > SUMS_PAIRS_MAX / c->batch / c->heads)
        return;
    memset(t->tried, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        for (int head = 0; head < c->heads; head++) {
            for (bool more = sweep_begin(&s, c, sequence, head); more; more = sweep_next(&s)) {
                struct variant right = variant_none(&s.panel);
                variant_gradient(&s.panel, &right, s.panel.lse, s.panel.delta, false);
                columns_add(t, &s.panel);
            }
            sweep_end(&s);
        }
    trial_offer(t, DIAGNOSIS_BIAS, t->tried, "dbias is transposed: its rows are keys");
}

static void try_all_zero(struct trial *t)
{
    for (int at = 0; at < t->rows * t->dim; at++)
        if (t->got[at] != 0)
            return;
    trial_offer(t, DIAGNOSIS_ZERO, t->got, "%s is zero", report_tensor_name(t->in->tensor));
}

// Tries dsink of the neighbouring head for every head. Values are in units of their heads
// (t->moved).
static void try_sink_heads(struct trial *t)
{
    int heads = t->dim;
    for (int with = -1; with < 2 && heads > 2; with += 2) {
        for (int head = 0; head < heads; head++)
            t->tried[head] = t->right[(head + with + heads) % heads] *
                             t->moved[(head + with + heads) % heads] / t->moved[head];
        trial_offer(t, DIAGNOSIS_HEADS, t->tried, "dsink of a head is that of the head %s it",
                    with < 0 ? "before" : "after");
    }
}

// Names the wrong heads if others are right. Values are in units of their heads (t->moved) for
// dsink.
static void try_some_heads(struct trial *t)
{
    int wrong = 0, first = -1;
    double noise = TRIAL_WRONG * t->noise / (t->rows * t->dim);
    for (int head = 0; head < t->dim; head++) {
        bool bad = pow(t->got[head] - t->right[head], 2) > noise;
        t->tried[head] = bad ? t->got[head] : t->right[head];
        first = bad && first < 0 ? head : first;
        wrong += bad;
    }
    if (wrong == 0 || 2 * wrong > t->dim)
        return;
    double unit = t->in->tensor == TENSOR_DSINK ? t->moved[first] : 1;
    trial_offer(t, DIAGNOSIS_PLACES, t->tried,
                "%s is wrong in %d of %d heads, such as head %d, where it is %.6g instead of %.6g; "
                "the other heads are right",
                report_tensor_name(t->in->tensor), wrong, t->dim, first, t->got[first] * unit,
                t->right[first] * unit);
}

static enum explains sums_try(struct trial *t, const struct parts *x, struct finding *result)
{
    if (t->finite) {
        try_sign(t);
        try_ranks(t, x);
        if (t->in->tensor == TENSOR_MAX_LOGIT)
            try_base(t);
        try_plain_values(t);
        try_stored(t);
        if (t->in->tensor == TENSOR_DSINK)
            try_sink_heads(t);
        if (t->in->tensor != TENSOR_DSINK)
            trial_offer(t, DIAGNOSIS_MISSING_KEYS, x->local, "%s lacks the keys of other ranks",
                        report_tensor_name(t->in->tensor));
        if (t->in->tensor == TENSOR_DBIAS)
            try_last(t, x);
        if (t->in->tensor == TENSOR_DBIAS && !trial_solved(t))
            try_transposed(t);
        if (!trial_solved(t))
            try_all_zero(t);
        if (t->in->tensor == TENSOR_DBIAS && !trial_solved(t))
            try_zeros(t);
    }
    enum explains explains = trial_decide(t, result);
    if (explains != EXPLAINS_NOTHING || t->in->tensor == TENSOR_DBIAS || !t->finite)
        return explains;
    try_some_heads(t);
    return trial_decide(t, result);
}

// ---- results with one number for each head ------------------------------------------------------

// The rank that computes a query with a head: the query's rank, or the member of its team that has
// the head.
static int computed_by(const struct trial *t, const struct chunks *x, int64_t position, int head)
{
    int rank = x->ranks[chunks_find(x, position)];
    struct team team = team_of(rank, team_size(t->c));
    for (int member = 0; member < team.size; member++) {
        struct heads heads = team_heads(t->c, team.size, member);
        if (team.size > 1 && head >= heads.first && head < heads.first + heads.count)
            return team.first + member;
    }
    return rank;
}

// Fills in dsink of a head, delivered and by part, in units of the root of the sum of the squares
// of its terms. t->moved has the units. False: LSE and delta are not available.
static bool head_dsink(struct trial *t, struct parts *x, int head, double *lse, double *delta)
{
    const struct cp_case *c = t->c;
    double squares = 0;
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        struct chunks chunks;
        chunks_init(&chunks, c, SIDE_Q, sequence);
        if (!statistics_of_head(t->in, sequence, head, lse, delta))
            return false;
        for (int64_t i = 0; i < chunks.begin[chunks.count]; i++) {
            double term = -exp(input_sink(c, head) - lse[i]) * delta[i];
            part_of(t, x, computed_by(t, &chunks, i, head))[head] += term;
            squares += term * term;
        }
    }
    double unit = squares > 0 ? sqrt(squares) : 1;
    for (int part = 0; part < x->count; part++)
        part_of(t, x, part)[head] /= unit;
    t->got[head] = t->in->rows[0].got[head] / unit;
    t->moved[head] = unit;
    return true;
}

// Raises part[head] to the largest logit of a row, and local[head] to the largest one over keys of
// the query's own team.
static void row_max_logit(const struct panel *p, int row, int head, int rank, int team,
                          double *part, double *local)
{
    for (int64_t key = 0; key < p->keys; key++) {
        double weight = p->p[row * p->columns + key];
        int owner = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
        if (weight <= 0)
            continue;
        part[head] = fmax(part[head], p->lse[row] + log(weight));
        if (owner / team == rank / team)
            local[head] = fmax(local[head], p->lse[row] + log(weight));
    }
}

static bool head_max_logit(struct trial *t, struct parts *x, int head)
{
    struct sweep s;
    for (int32_t sequence = 0; sequence < t->c->batch; sequence++) {
        for (bool more = sweep_begin(&s, t->c, sequence, head); more; more = sweep_next(&s)) {
            struct panel *p = &s.panel;
            struct variant right = variant_none(p);
            variant_gradient(p, &right, p->lse, p->delta, false);
            for (int row = 0; row < p->rows; row++) {
                int rank = computed_by(t, &p->q_chunks, s.first + row, head);
                row_max_logit(p, row, head, rank, team_size(t->c), part_of(t, x, rank), x->local);
            }
        }
        sweep_end(&s);
    }
    t->got[head] = t->in->rows[0].got[head];
    return true;
}

static bool heads_fill(struct trial *t, struct parts *x)
{
    int64_t most = t->c->seqlen_q + 1;
    double *lse = malloc((size_t)(2 * most) * sizeof(double));
    bool known = lse != NULL;
    for (int head = 0; head < t->c->heads && known; head++)
        known = t->in->tensor == TENSOR_DSINK ? head_dsink(t, x, head, lse, lse + most)
                                              : head_max_logit(t, x, head);
    free(lse);
    return known;
}

// ---- the bias -----------------------------------------------------------------------------------

// Adds dS of row i of a panel to the parts of row `row` of dbias.
static void bias_row_add(struct trial *t, struct parts *x, int row, const struct panel *p, int i)
{
    int64_t at = (int64_t)row * t->dim;
    int by = computed_by(t, &p->q_chunks, p->setup.positions[i], p->setup.head);
    int size = team_size(t->c);
    double *part = part_of(t, x, by) + at;
    const struct diagnosis_row *given = &t->in->rows[row];
    for (int64_t key = given->first; key < given->first + given->count && key < p->keys; key++) {
        double ds = p->ds[i * p->columns + key];
        int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
        part[key] += ds;
        x->local[at + key] += rank / size == by / size ? ds : 0;
        x->last[at + key] = ds;
        x->sequence[at + key] += p->setup.sequence == t->c->batch - 1 ? ds : 0;
        x->head[at + key] += p->setup.head == t->c->heads - 1 ? ds : 0;
    }
}

// Adds the contribution of one sequence and head to a row of dbias: that of the row's query, or of
// all queries if the bias has no dimension of queries.
static bool bias_row_head(struct trial *t, struct parts *x, int row, int32_t sequence, int head)
{
    const struct cp_case *c = t->c;
    const struct diagnosis_row *given = &t->in->rows[row];
    struct sweep s;
    if (bias_has_queries(c)) {
        struct panel p;
        struct panel_setup setup = {.c = c,
                                    .sequence = sequence,
                                    .side = SIDE_Q,
                                    .head = head,
                                    .query_head = head,
                                    .key_head = head / (c->heads / c->kv_heads),
                                    .count = 1,
                                    .positions = &given->position};
        if (given->position >= case_length(c, SIDE_Q, sequence))
            return true;
        bool known = panel_init(&p, &setup) && variant_statistics(&p);
        if (known) {
            struct variant right = variant_none(&p);
            variant_gradient(&p, &right, p.lse, p.delta, false);
            bias_row_add(t, x, row, &p, 0);
        }
        panel_fini(&p);
        return known;
    }
    for (bool more = sweep_begin(&s, c, sequence, head); more; more = sweep_next(&s)) {
        struct variant right = variant_none(&s.panel);
        variant_gradient(&s.panel, &right, s.panel.lse, s.panel.delta, false);
        for (int i = 0; i < s.panel.rows; i++)
            bias_row_add(t, x, row, &s.panel, i);
    }
    sweep_end(&s);
    return true;
}

static bool bias_fill(struct trial *t, struct parts *x)
{
    const struct cp_case *c = t->c;
    for (int row = 0; row < t->rows; row++) {
        const struct diagnosis_row *given = &t->in->rows[row];
        t->row_of[row] = row;
        for (int64_t key = 0; key < given->count; key++)
            t->got[(int64_t)row * t->dim + given->first + key] = given->got[key];
        for (int32_t sequence = 0; sequence < c->batch; sequence++)
            for (int head = 0; head < c->heads; head++) {
                if ((bias_has_batch(c) && sequence != given->sequence) ||
                    (bias_has_heads(c) && head != given->head))
                    continue;
                if (!bias_row_head(t, x, row, sequence, head))
                    return false;
            }
    }
    return true;
}

// ---- both ---------------------------------------------------------------------------------------

// Number of rows of dbias, at most 16, that SUMS_PAIRS_MAX permits. For results with one number for
// each head: 1, or 0 if they are too much work.
static int rows_affordable(const struct diagnosis_input *in)
{
    const struct cp_case *c = in->c;
    int64_t keys = c->seqlen_kv > 0 ? c->seqlen_kv : 1, pairs = keys;
    bool bias = in->tensor == TENSOR_DBIAS;
    if (in->tensor == TENSOR_DSINK)
        return 1;
    pairs *= bias && bias_has_heads(c) ? 1 : c->heads;
    pairs *= bias && bias_has_batch(c) ? 1 : c->batch;
    if (!bias || !bias_has_queries(c)) {
        if (c->seqlen_q > SUMS_PAIRS_MAX || pairs > SUMS_PAIRS_MAX)
            return 0;
        pairs *= c->seqlen_q;
    }
    int64_t rows = pairs > 0 ? SUMS_PAIRS_MAX / pairs : 1;
    rows = rows < in->count ? rows : in->count;
    return rows < 16 ? (int)rows : 16;
}

// RMS error of an honest result: relative for dbias, in units of the heads for dsink, absolute for
// the largest logits.
static double honest(const struct diagnosis_input *in)
{
    const double of_dtype[] = {[DTYPE_BF16] = 5e-3, [DTYPE_FP16] = 6e-4, [DTYPE_FP32] = 1e-5};
    return in->tensor == TENSOR_MAX_LOGIT ? 1e-4 : of_dtype[in->c->dtype];
}

static double rms(const struct trial *t, const double *values)
{
    double sum = 0;
    for (int at = 0; at < t->rows * t->dim; at++)
        sum += values[at] * values[at];
    return sqrt(sum / (t->rows * t->dim));
}

enum explains sums_find(const struct diagnosis_input *in, struct finding *result,
                        struct groups *groups)
{
    enum explains explains = EXPLAINS_NOTHING;
    struct trial t = {.memory = NULL};
    struct parts parts = {.values = NULL};
    int rows = rows_affordable(in);
    bool bias = in->tensor == TENSOR_DBIAS;
    int dim = bias ? (int)in->c->seqlen_kv : in->c->heads;
    bool known = rows > 0 && trial_init_values(&t, in, rows, dim) &&
                 parts_init(&parts, &t, in->tensor == TENSOR_MAX_LOGIT ? -INFINITY : 0) &&
                 (bias ? bias_fill(&t, &parts) : heads_fill(&t, &parts));
    if (known) {
        parts_but(&t, &parts, -1, false, t.right);
        trial_weigh(&t, honest(in) * (bias ? rms(&t, t.right) : 1));
        explains = sums_try(&t, &parts, result);
        if (bias)
            groups_init(groups, &t, true);
    }
    free(parts.values);
    trial_fini(&t);
    return explains;
}
