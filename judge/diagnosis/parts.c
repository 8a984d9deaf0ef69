// SPDX-License-Identifier: Apache-2.0
// Hypotheses about query rows: the contribution of some keys is missing or counted twice; partial
// results are merged with wrong weights instead of by their LSE; or the LSE lacks one of its two
// terms.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// A subset of the keys of each sequence: one chunk, the chunks of one rank or of adjacent ranks,
// one key of a chunk, or the keys at the end that do not fill a tile.
struct part {
    int chunk; // -1: the chunks of ranks
    int rank;  // if chunk is -1: the first rank
    int more;  // number of ranks after `rank`
    int half;  // of these ranks' chunks: 0 all, 1 the first of each, 2 the second
    int edge;  // of a chunk: 0 all keys, 1 the first key, 2 the last key
    int tile;  // tile size; 0: not the end of the sequence
};

static bool part_has(const struct chunks *x, const struct part *part, int chunk)
{
    if (part->tile)
        return true;
    if (part->chunk >= 0)
        return part->chunk == chunk;
    int rank = x->ranks[chunk] - part->rank;
    return 0 <= rank && rank <= part->more &&
           (part->half == 0 || x->halves[chunk] == part->half - 1);
}

static void part_range(const struct chunks *x, const struct part *part, int chunk, int64_t *begin,
                       int64_t *end)
{
    *begin = x->begin[chunk];
    *end = x->begin[chunk + 1];
    if (part->edge == 1 && *end > *begin)
        *end = *begin + 1;
    if (part->edge == 2 && *end > *begin)
        *begin = *end - 1;
    if (part->tile) {
        int64_t keys = x->begin[x->count], from = keys - keys % part->tile;
        *begin = *begin > from ? *begin : from < *end ? from : *end;
    }
}

// The contribution of a part to the rows: `values` is its share of P V (out) or of dS K (dq),
// `weights` its share of the softmax. Needs p->p and p->ds of the right attention.
static void part_evaluate(struct trial *t, const struct part *part, double *values, double *weights)
{
    memset(values, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    memset(weights, 0, (size_t)t->rows * sizeof(double));
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        double *rows = values + (int64_t)t->panel_first[i] * t->dim;
        for (int chunk = 0; chunk < p->k_chunks.count; chunk++) {
            int64_t begin, end;
            part_range(&p->k_chunks, part, chunk, &begin, &end);
            if (!part_has(&p->k_chunks, part, chunk) || begin == end)
                continue;
            if (t->in->tensor == TENSOR_DQ)
                panel_add_qk(p, p->ds, begin, end, rows);
            else if (t->in->tensor == TENSOR_OUT)
                panel_add_v(p, p->p, begin, end, rows);
            for (int row = 0; row < p->rows; row++)
                for (int64_t key = begin; key < end; key++)
                    weights[t->panel_first[i] + row] += p->p[row * p->columns + key];
        }
    }
    for (int i = 0; i < t->rows * t->dim && t->in->tensor == TENSOR_DQ; i++)
        values[i] *= case_scale(t->c);
}

// The attention without a mistake.
static struct variant right_one(const struct panel *p, const void *with)
{
    (void)with;
    return variant_none(p);
}

// Fills t->tried and t->lse_tried with the rows that result if a part is counted `times` times
// instead of once.
static void part_apply(struct trial *t, const double *values, const double *weights, double times)
{
    for (int row = 0; row < t->rows; row++) {
        double sum = 1 + (times - 1) * weights[row];
        double shrink = t->in->tensor == TENSOR_DQ ? 1 : sum > 1e-12 ? 1 / sum : 0;
        t->lse_tried[row] = sum > 1e-12 ? t->lse_right[row] + log(sum) : -INFINITY;
        for (int k = 0; k < t->dim; k++) {
            int at = row * t->dim + k;
            t->tried[at] = (t->right[at] + (times - 1) * values[at]) * shrink;
            if (t->in->tensor == TENSOR_LSE)
                t->tried[at] = t->lse_tried[row];
        }
    }
}

// ---- names --------------------------------------------------------------------------------------

// Writes how a rank's keys reach the rows, such as "rank 2, ring step 1" or, if the steps are not
// known, "rank 2, for rows of rank 0".
static void rank_name(const struct trial *t, int rank, char *text, size_t size)
{
    const struct cp_case *c = t->c;
    int members = team_size(c), teams = c->world_size / members;
    int step = (t->in->rank / members - rank / members + teams) % teams;
    if (t->in->tensor == TENSOR_DQ)
        step = (rank / members - t->in->rank / members - 1 + teams) % teams;
    if (t->in->steps_unknown && c->world_size > 1)
        snprintf(text, size, "rank %d, for rows of rank %d", rank, t->in->rank);
    else if (teams > 1 && c->comm != COMM_ALL_GATHER)
        snprintf(text, size, "rank %d, ring step %d", rank, step);
    else
        snprintf(text, size, "rank %d", rank);
}

static void part_name(const struct trial *t, const struct part *part, char *text, size_t size)
{
    const struct chunks *x = &t->panels[0].k_chunks;
    int rank = part->chunk >= 0 ? x->ranks[part->chunk] : part->rank, length = 0;
    char name[48];
    int64_t begin, end, keys = x->begin[x->count];
    if (part->tile) {
        snprintf(text, size, "keys %lld to %lld, which do not fill a tile of %d,",
                 (long long)(keys - keys % part->tile), (long long)keys - 1, part->tile);
        return;
    }
    rank_name(t, rank, name, sizeof(name));
    *text = '\0';
    if (part->chunk >= 0) {
        part_range(x, part, part->chunk, &begin, &end);
        if (part->edge)
            snprintf(text, size, "key %lld (%s of chunk %d, %s)", (long long)begin,
                     part->edge == 1 ? "the first" : "the last", part->chunk, name);
        else
            snprintf(text, size, "keys %lld to %lld (chunk %d, %s)", (long long)begin,
                     (long long)end - 1, part->chunk, name);
        return;
    }
    for (int chunk = 0; chunk < x->count; chunk++)
        if (x->ranks[chunk] == rank && x->begin[chunk] < x->begin[chunk + 1])
            length += snprintf(text + length, size - (size_t)length, "%s%lld to %lld",
                               length ? " and " : "keys ", (long long)x->begin[chunk],
                               (long long)x->begin[chunk + 1] - 1);
    if (length == 0)
        length = snprintf(text, size, "the keys");
    snprintf(text + length, size - (size_t)length, " (%s)", name);
}

// ---- missing or twice ---------------------------------------------------------------------------

static void try_part(struct trial *t, const struct part *part, double *values, double *weights)
{
    char name[120];
    const char *tensor = t->in->tensor == TENSOR_DQ ? "from dq" : "from the softmax";
    const char *doubly = t->in->tensor == TENSOR_DQ ? "in dq" : "in the softmax";
    part_evaluate(t, part, values, weights);
    part_name(t, part, name, sizeof(name));
    part_apply(t, values, weights, 0);
    trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried, "%s %s missing %s", name,
                part->edge ? "is" : "are", tensor);
    if (t->in->tensor == TENSOR_OUT) {
        trial_keep_lse(t);
        trial_offer(t, DIAGNOSIS_MERGE, t->tried,
                    "%s %s missing from out, but not from the LSE: out was stored before they were "
                    "merged",
                    name, part->edge ? "is" : "are");
    }
    part_apply(t, values, weights, 2);
    trial_offer(t, DIAGNOSIS_REPEATED_KEYS, t->tried, "%s count%s twice %s", name,
                part->edge ? "s" : "", doubly);
}

// Tries rows of dq or of LSE, or of out with the final LSE, that have the keys of one rank alone.
static void try_alone(struct trial *t, int rank, double *values, double *weights)
{
    struct part part = {.chunk = -1, .rank = rank};
    char name[120];
    part_evaluate(t, &part, values, weights);
    part_name(t, &part, name, sizeof(name));
    trial_keep_lse(t);
    for (int row = 0; row < t->rows && t->in->tensor == TENSOR_LSE; row++)
        values[row] = weights[row] > 0 ? t->lse_right[row] + log(weights[row]) : -INFINITY;
    trial_offer(t, DIAGNOSIS_MISSING_KEYS, values,
                "%s has only %s: the rest is overwritten, or never added",
                report_tensor_name(t->in->tensor), name);
}

// Tries rows that lack all keys except those of the query's own rank.
static void try_remote(struct trial *t, double *values, double *weights)
{
    int own = t->in->rank;
    struct part part = {.chunk = -1, .rank = own};
    if (own < 0)
        return;
    part_evaluate(t, &part, values, weights);
    for (int i = 0; i < t->rows * t->dim; i++)
        values[i] = t->right[i] - values[i];
    for (int row = 0; row < t->rows; row++)
        weights[row] = 1 - weights[row];
    if (t->c->softmax != SOFTMAX_VANILLA && t->in->tensor != TENSOR_DQ)
        return; // the rest also contains the sink
    part_apply(t, values, weights, 0);
    trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                "only the keys of rank %d itself are in %s, none of another rank", own,
                t->in->tensor == TENSOR_DQ ? "dq" : "the softmax");
}

// ---- merged with fixed weights ------------------------------------------------------------------

#define MERGE_PARTS_MAX 16

// Lists partial results as kernels deliver them. way 0: one for each rank; 1: one for each chunk;
// 2: one for each other rank and two for the query's rank. Returns their number; 0: too many.
static int merge_parts(const struct trial *t, int way, struct part *parts)
{
    int count = 0, chunks = t->panels[0].k_chunks.count;
    for (int i = 0; i < chunks; i++) {
        int rank = t->panels[0].k_chunks.ranks[i];
        bool whole = way == 0 || (way == 2 && rank != t->in->rank);
        if (count == MERGE_PARTS_MAX)
            return 0;
        if (!whole)
            parts[count++] = (struct part){.chunk = i};
        else if (t->panels[0].k_chunks.halves[i] == 0)
            parts[count++] = (struct part){.chunk = -1, .rank = rank};
    }
    return count;
}

// The same for teams, whose chunks of one half are adjacent. way 0: one for each team; 1: one for
// each half of a team; 2: one for each other team and two for the query's team.
static int merge_team_parts(const struct trial *t, int way, struct part *parts)
{
    int count = 0, members = team_size(t->c);
    for (int rank = 0; rank < t->c->world_size; rank += members) {
        bool own = t->in->rank / members == rank / members;
        int halves = way == 1 || (way == 2 && own) ? 2 : 1;
        for (int half = 0; half < halves; half++) {
            if (count == MERGE_PARTS_MAX)
                return 0;
            parts[count++] = (struct part){
                .chunk = -1, .rank = rank, .more = members - 1, .half = halves > 1 ? half + 1 : 0};
        }
    }
    return count;
}

// Fits fixed weights of the partial results, each of which is normalized by its own softmax.
static void try_merge(struct trial *t, const struct part *parts, int parts_count, double *values,
                      double *weights)
{
    double *components[MERGE_PARTS_MAX], factors[MERGE_PARTS_MAX];
    int count = 0, n = t->rows * t->dim;
    for (int i = 0; i < parts_count; i++) {
        double *component = values + (int64_t)count * n, most = 0;
        part_evaluate(t, &parts[i], component, weights);
        for (int at = 0; at < n; at++) {
            double weight = weights[at / t->dim];
            component[at] = weight > 1e-30 ? component[at] / weight : 0;
            most = fmax(most, weight);
        }
        components[count] = component;
        count += most > 1e-30;
    }
    if (count < 2 || !trial_fit(t, components, count, NULL, factors))
        return;
    double least = 1, largest = 0;
    memset(t->tried, 0, (size_t)n * sizeof(double));
    for (int i = 0; i < count; i++) {
        least = fmin(least, factors[i]);
        largest = fmax(largest, factors[i]);
        for (int at = 0; at < n; at++)
            t->tried[at] += factors[i] * components[i][at];
    }
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_MERGE, t->tried,
                "%d partial results are merged with fixed weights, %.3g to %.3g, instead of "
                "by their LSE",
                count, least, largest);
}

static void try_merges(struct trial *t, double *values, double *weights)
{
    struct part parts[MERGE_PARTS_MAX];
    for (int way = 0; way < 3; way++)
        try_merge(t, parts, merge_parts(t, way, parts), values, weights);
    for (int way = 0; way < 3 && team_size(t->c) > 1; way++)
        try_merge(t, parts, merge_team_parts(t, way, parts), values, weights);
}

// ---- merged without a weight --------------------------------------------------------------------

// A ring step merges a partial result `part`: out = a * out + b * part. a and b are the shares of
// the earlier keys and of the new keys in the sum of their softmax weights.
struct merged {
    double *unscaled;   // [rows][dim]: out with a = 1
    double *unweighted; // [rows][dim]: out with b = 1
    double *sums;       // [rows]: sum of the weights so far
};

static void merged_add(const struct trial *t, const struct merged *m, const double *values,
                       const double *weights)
{
    for (int row = 0; row < t->rows; row++) {
        double before = m->sums[row], share = weights[row];
        if (share < 1e-30)
            continue;
        m->sums[row] = before + share;
        for (int at = row * t->dim; at < (row + 1) * t->dim; at++) {
            m->unscaled[at] += values[at] / m->sums[row];
            m->unweighted[at] = m->unweighted[at] * (before / m->sums[row]) + values[at] / share;
        }
    }
}

// Merges the parts in the order in which a ring brings them to the query's rank: from the ranks
// before it (`way` -1) or after it (1).
static void try_unscaled(struct trial *t, int way, double *values, double *weights)
{
    int members = team_size(t->c), teams = t->c->world_size / members, n = t->rows * t->dim;
    double sums[DIAGNOSIS_ROWS_MAX] = {0};
    const struct merged m = {values + n, values + 2 * n, sums};
    memset(m.unscaled, 0, 2 * (size_t)n * sizeof(double));
    for (int step = 0; step < teams; step++) {
        int team = (t->in->rank / members + way * step + teams) % teams;
        part_evaluate(t, &(struct part){.chunk = -1, .rank = team * members, .more = members - 1},
                      values, weights);
        merged_add(t, &m, values, weights);
    }
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_MERGE, m.unscaled,
                "a ring step adds its partial result without scaling the earlier out by "
                "exp(LSE before - LSE after)");
    trial_offer(t, DIAGNOSIS_MERGE, m.unweighted,
                "a ring step adds its partial result without scaling that by "
                "exp(its LSE - LSE after)");
}

// ---- the terms of the LSE -----------------------------------------------------------------------

// LSE = m + log(sum of exp(logit - m)), where m is the largest logit of the row. Its weight is
// exp(m - LSE), so m is the LSE plus the logarithm of the largest weight.
static void try_terms(struct trial *t)
{
    for (int term = 0; term < 2; term++) {
        for (int i = 0; i < t->panel_count; i++) {
            const struct panel *p = &t->panels[i];
            for (int row = 0; row < p->rows; row++) {
                double most = 0, lse = t->lse_right[t->panel_first[i] + row];
                for (int64_t key = 0; key < p->columns; key++)
                    most = fmax(most, p->p[row * p->columns + key]);
                t->tried[t->panel_first[i] + row] = most == 0   ? lse
                                                    : term == 0 ? lse + log(most)
                                                                : -log(most);
            }
        }
        memcpy(t->lse_tried, t->tried, (size_t)t->rows * sizeof(double));
        trial_offer(t, DIAGNOSIS_LSE, t->tried,
                    term == 0 ? "lse is the largest logit of each row: log(sum) is missing"
                              : "lse is log(sum): the largest logit of each row is missing");
    }
}

// ---- out that is not divided --------------------------------------------------------------------

// Tries sums of exp(logit - largest logit) V, and of exp(logit) V, with the right LSE.
static void try_undivided(struct trial *t)
{
    trial_evaluate(t, right_one, NULL);
    trial_keep_lse(t);
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < t->panel_count; i++)
            for (int row = 0; row < t->panels[i].rows; row++) {
                const struct panel *p = &t->panels[i];
                int to = t->panel_first[i] + row;
                double most = 0;
                for (int64_t key = 0; key < p->columns; key++)
                    most = fmax(most, p->p[row * p->columns + key]);
                double factor = way == 1 ? exp(t->lse_right[to]) : most > 0 ? 1 / most : 1;
                for (int at = to * t->dim; at < (to + 1) * t->dim; at++)
                    t->tried[at] = t->right[at] * factor;
            }
        trial_offer(t, DIAGNOSIS_ROW_FACTORS, t->tried,
                    "out is not divided by the sum of the softmax%s",
                    way == 1 ? ": it is a sum of exp(logit) V" : "");
    }
}

// ---- several at once ----------------------------------------------------------------------------

#define FIT_PARTS_MAX 32

// Writes the ranks that are counted `times` times in dq, such as "0, 2".
static void ranks_list(const double *factors, int world, double times, char *text, size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (int rank = 0; rank < world && length + 8 < size; rank++)
        if (fabs(round(factors[rank]) - times) < 0.5)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%d", length ? ", " : "", rank);
}

// Finds how often each rank's keys are counted in dq, by least squares.
static void try_counts(struct trial *t, double *values, double *weights)
{
    double *components[FIT_PARTS_MAX], factors[FIT_PARTS_MAX], most = 1;
    int world = t->c->world_size, n = t->rows * t->dim;
    char missing[60], often[60];
    for (int rank = 0; rank < world; rank++) {
        components[rank] = values + (int64_t)rank * n;
        part_evaluate(t, &(struct part){.chunk = -1, .rank = rank}, components[rank], weights);
    }
    if (!trial_fit(t, components, world, NULL, factors))
        return;
    memset(t->tried, 0, (size_t)n * sizeof(double));
    for (int rank = 0; rank < world; rank++) {
        most = fmax(most, round(factors[rank]));
        for (int at = 0; at < n; at++)
            t->tried[at] += round(factors[rank]) * components[rank][at];
    }
    ranks_list(factors, world, 0, missing, sizeof(missing));
    ranks_list(factors, world, most, often, sizeof(often));
    if (*missing && most > 1)
        trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                    "the keys of rank %s are in dq %.0f times, those of rank %s are not: keys are "
                    "attended in the place of others",
                    often, most, missing);
    else if (*missing)
        trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried, "the keys of ranks %s are missing from dq",
                    missing);
    else if (most > 1)
        trial_offer(t, DIAGNOSIS_REPEATED_KEYS, t->tried,
                    "the keys of ranks %s are in dq %.0f times", often, most);
}

void try_parts(struct trial *t)
{
    int chunks = t->panels[0].k_chunks.count, world = t->c->world_size;
    int64_t n = (int64_t)t->rows * t->dim;
    double *values = malloc((size_t)(n * FIT_PARTS_MAX) * sizeof(double));
    double weights[DIAGNOSIS_ROWS_MAX];
    bool query_side = t->panels[0].setup.side == SIDE_Q;
    if (!values || !query_side) {
        free(values);
        return;
    }
    trial_evaluate(t, right_one, NULL);
    for (int rank = 0; rank < world && world > 1 && !trial_over(t); rank++)
        try_part(t, &(struct part){.chunk = -1, .rank = rank}, values, weights);
    for (int chunk = 0; chunk < chunks && !trial_over(t); chunk++)
        for (int edge = 0; edge < 3; edge++)
            if (chunks > 1 || edge)
                try_part(t, &(struct part){.chunk = chunk, .edge = edge}, values, weights);
    for (int tile = 16; tile <= 256 && !trial_over(t); tile *= 2)
        if (t->panels[0].keys > tile && t->panels[0].keys % tile > 1)
            try_part(t, &(struct part){.chunk = -1, .tile = tile}, values, weights);
    if (t->in->tensor == TENSOR_LSE)
        try_terms(t);
    if (world > 2)
        try_remote(t, values, weights);
    for (int rank = 0; rank < world && world > 1 && !trial_over(t); rank++)
        if (t->in->tensor == TENSOR_OUT || world > 2)
            try_alone(t, rank, values, weights);
    if (t->in->tensor == TENSOR_OUT) {
        try_undivided(t);
        try_merges(t, values, weights);
    }
    bool ring = world > team_size(t->c) && t->c->softmax == SOFTMAX_VANILLA; // without a sink
    for (int way = -1; way <= 1 && ring && t->in->tensor == TENSOR_OUT && t->in->rank >= 0;
         way += 2)
        try_unscaled(t, way, values, weights);
    if (world > 2 && world <= FIT_PARTS_MAX && t->in->tensor == TENSOR_DQ)
        try_counts(t, values, weights);
    if (world > 1 && t->in->tensor == TENSOR_DQ && t->in->rank >= 0) {
        part_evaluate(t, &(struct part){.chunk = -1, .rank = t->in->rank}, values, weights);
        trial_try_shares(t, values, "keys");
    }
    free(values);
}
