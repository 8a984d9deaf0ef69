// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/reference.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "judge/inputs.h"
#include "judge/mask.h"
#include "judge/rules.h"

// QUERIES_MAX: queries per block. SCORES_MAX: scores per matrix (8 MiB); with many keys this limit
// reduces the queries per block.
#define QUERIES_MAX 64
#define SCORES_MAX  (INT64_C(1) << 20)

// ---- the mask -----------------------------------------------------------------------------------

// One sequence of the case.
struct scope {
    const struct cp_case *c;
    int sequence;
    struct mask mask;
};

static struct scope scope_of(const struct cp_case *c, int sequence)
{
    return (struct scope){.c = c, .sequence = sequence, .mask = mask_of(c, sequence)};
}

static int64_t range_length(struct range r)
{
    return r.end > r.begin ? r.end - r.begin : 0;
}

// The range from the first to the last key that any of the queries sees.
static struct range keys_seen(const struct scope *s, struct range queries, struct range keys)
{
    struct range seen = mask_keys_of(&s->mask, queries);
    if (seen.begin > keys.begin)
        keys.begin = seen.begin;
    if (seen.end < keys.end)
        keys.end = seen.end;
    if (keys.begin >= keys.end)
        keys.end = keys.begin;
    return keys;
}

// ---- matrices, row-major, fp64 ------------------------------------------------------------------

// C [m][n] = alpha * A [m][k] * B [n][k]'
static void product_nt(int64_t m, int64_t n, int64_t k, double alpha, const double *a,
                       const double *b, double *c)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, alpha, a, (int)k,
                b, (int)k, 0, c, (int)n);
}

// C [m][n] = alpha * A [m][k] * B [k][n]
static void product_nn(int64_t m, int64_t n, int64_t k, double alpha, const double *a,
                       const double *b, double *c)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)k,
                b, (int)n, 0, c, (int)n);
}

// C [m][n] += alpha * A [k][m]' * B [k][n]
static void add_product_tn(int64_t m, int64_t n, int64_t k, double alpha, const double *a,
                           const double *b, double *c)
{
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)m,
                b, (int)n, 1, c, (int)n);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

// Like product_nt(), but computes each element by the same operations for all m and n.
static void dots(int64_t m, int64_t n, int64_t k, double alpha, const double *a, const double *b,
                 double *c)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * n + j] = alpha * dot(a + i * k, b + j * k, k);
}

// ---- what a call works on -----------------------------------------------------------------------

struct work {
    struct scope scope;
    const struct cp_case *c;
    double scale;
    double products; // rules_product_squares()
    int64_t d_qk, d_v;
    struct range keys; // keys in k and v
    int64_t block;     // queries of a block
    double *k, *v;     // [keys][d]
    double *q, *d_out; // [block][d]
    double *p, *ds;    // [block][keys of the block]
    double *slope;     // the same shape: d logit / d scaled score; only with a softcap
    double *all;       // memory of these arrays
    float *bias;       // [keys]
};

static void work_fini(struct work *w)
{
    free(w->all);
    free(w->bias);
}

static size_t work_lay_out(struct work *w, int64_t count)
{
    int64_t scores = w->block * count, used = 0;
    struct {
        double **place;
        int64_t doubles;
    } pieces[] = {{&w->k, count * w->d_qk},
                  {&w->v, count * w->d_v},
                  {&w->q, w->block * w->d_qk},
                  {&w->d_out, w->block * w->d_v},
                  {&w->p, scores},
                  {&w->ds, scores},
                  {&w->slope, w->c->softcap != 0 ? scores : 0}};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        *pieces[i].place = w->all ? w->all + used : NULL;
        used += pieces[i].doubles;
    }
    return (size_t)used * sizeof(double);
}

static enum status work_init(struct work *w, const struct scope *scope, struct range keys,
                             struct error *error)
{
    const struct cp_case *c = scope->c;
    int64_t count = range_length(keys), rows = QUERIES_MAX;
    if (count > SCORES_MAX / QUERIES_MAX)
        rows = count < SCORES_MAX ? SCORES_MAX / count : 1;
    *w = (struct work){.scope = *scope,
                       .c = c,
                       .scale = case_scale(c),
                       .products = rules_product_squares(c),
                       .d_qk = c->head_dim_qk,
                       .d_v = c->head_dim_v,
                       .keys = keys,
                       .block = rows};
    size_t bytes = work_lay_out(w, count);
    w->all = malloc(bytes);
    w->bias = malloc((size_t)count * sizeof(float) + 1);
    if (!w->all || !w->bias) {
        work_fini(w);
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "no memory for %zu bytes of the reference with %lld keys", bytes,
                  (long long)count);
        return STATUS_RESOURCE_EXHAUSTED;
    }
    work_lay_out(w, count);
    blas_prepare();
    return STATUS_OK;
}

static void load(const struct work *w, enum input_tensor tensor, int head, struct range positions,
                 double *rows)
{
    float values[HEAD_DIM_MAX];
    int d = input_head_dim(w->c, tensor);
    for (int64_t position = positions.begin; position < positions.end; position++) {
        input_token_head(w->c, tensor, w->scope.sequence, position, head, values);
        for (int i = 0; i < d; i++)
            *rows++ = values[i];
    }
}

static const double *key_rows(const struct work *w, struct range keys)
{
    return w->k + (keys.begin - w->keys.begin) * w->d_qk;
}

static const double *value_rows(const struct work *w, struct range keys)
{
    return w->v + (keys.begin - w->keys.begin) * w->d_v;
}

// ---- logits -------------------------------------------------------------------------------------

static void cap_logits(const struct work *w, int64_t count)
{
    double cap = w->c->softcap;
    for (int64_t i = 0; i < count; i++) {
        double x = w->p[i] / cap, inverse = 1 / cosh(x);
        w->p[i] = cap * tanh(x);
        w->slope[i] = inverse * inverse; // 1 - tanh^2 without its cancellation
    }
}

static void add_bias(struct work *w, int head, struct range queries, struct range keys)
{
    int64_t columns = range_length(keys);
    for (int64_t i = 0; i < range_length(queries); i++) {
        input_bias(w->c, w->scope.sequence, head, queries.begin + i, keys.begin, columns, w->bias);
        for (int64_t j = 0; j < columns; j++)
            w->p[i * columns + j] += w->bias[j];
    }
}

// Computes the logits of the queries in w->q into w->p.
static void block_logits(struct work *w, int head, struct range queries, struct range keys)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    if (rules_logits_huge(w->c))
        dots(rows, columns, w->d_qk, w->scale, w->q, key_rows(w, keys), w->p);
    else
        product_nt(rows, columns, w->d_qk, w->scale, w->q, key_rows(w, keys), w->p);
    if (w->c->softcap != 0)
        cap_logits(w, rows * columns);
    if (w->c->bias != BIAS_NONE)
        add_bias(w, head, queries, keys);
}

// Turns dS from the gradient of the logits into the gradient of the scaled scores.
static void cap_gradient(const struct work *w, int64_t count)
{
    for (int64_t i = 0; i < count && w->c->softcap != 0; i++)
        w->ds[i] *= w->slope[i];
}

// ---- the query side -----------------------------------------------------------------------------

static double row_max(const struct work *w, int64_t query, struct range keys, const double *row)
{
    struct range seen = mask_keys(&w->scope.mask, query);
    double max = -INFINITY;
    for (int64_t key = seen.begin; key < seen.end; key++)
        max = row[key - keys.begin] > max ? row[key - keys.begin] : max;
    return max;
}

// Turns the logits of one query, whose maximum is `max`, into probabilities in place; a key that
// the query does not see gets 0. The sink is one more logit, without a value row. Returns the LSE.
static double softmax(const struct work *w, int64_t query, struct range keys, double max,
                      double sink, double *row)
{
    double top = max > sink ? max : sink;
    double sum = top == -INFINITY ? 0 : exp(sink - top);
    struct range seen = mask_keys(&w->scope.mask, query);
    for (int64_t key = keys.begin; key < keys.end; key++) {
        double *x = &row[key - keys.begin];
        *x = key >= seen.begin && key < seen.end ? exp(*x - top) : 0;
        sum += *x;
    }
    if (sum == 0)
        return -INFINITY;
    for (int64_t i = 0; i < keys.end - keys.begin; i++)
        row[i] /= sum;
    return top + log(sum);
}

// The output arrays of reference_queries(), advanced to the block's first query.
struct results {
    double *out, *lse, *delta, *dq, *terms;
    struct reference_sums sums;
};

static void block_out(struct work *w, int head, struct range queries, struct range keys,
                      const struct results *r)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    load(w, INPUT_Q, head, queries, w->q);
    block_logits(w, head, queries, keys);
    for (int64_t i = 0; i < rows; i++) {
        double *row = w->p + i * columns, max = row_max(w, queries.begin + i, keys, row);
        if (r->sums.max_logit && max > *r->sums.max_logit)
            *r->sums.max_logit = max;
        r->lse[i] = softmax(w, queries.begin + i, keys, max, input_sink(w->c, head), row);
    }
    product_nn(rows, w->d_v, columns, 1, w->p, value_rows(w, keys), r->out);
}

static void add_dsink(const struct work *w, int head, int64_t rows, const struct results *r)
{
    double products = rules_product_squares(w->c);
    for (int64_t i = 0; i < rows; i++) {
        double weight = exp(input_sink(w->c, head) - r->lse[i]);
        *r->sums.dsink -= weight * r->delta[i];
        *r->sums.dsink_squares += rules_sink_square(weight, r->delta[i], products);
    }
}

static void add_dbias(const struct work *w, int64_t rows, struct range keys,
                      const struct results *r)
{
    int64_t columns = range_length(keys);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            r->sums.dbias[i * r->sums.dbias_stride + keys.begin + j] += w->ds[i * columns + j];
}

// The squared term of one (query, key) pair. w->ds holds dP.
static double term_square(const struct work *w, int64_t at, double delta)
{
    double p = w->p[at] * (w->c->softcap != 0 ? w->slope[at] : 1), dp = w->ds[at];
    return p * p * (dp * dp + delta * delta + w->products);
}

// Turns dP in w->ds into dS for one query, and stores the query's terms.
static void query_gradient(struct work *w, int64_t row, int64_t columns, const struct results *r)
{
    double squares = 0, delta = r->delta[row];
    for (int64_t at = row * columns; at < (row + 1) * columns; at++) {
        squares += term_square(w, at, delta);
        w->ds[at] = w->p[at] * (w->ds[at] - delta);
    }
    if (r->terms)
        r->terms[row] = w->scale * sqrt(squares);
}

// Computes the gradients of a block. Needs the probabilities that block_out() left in w->p.
static void block_gradient(struct work *w, int head, struct range queries, struct range keys,
                           const struct results *r)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    load(w, INPUT_DO, head, queries, w->d_out);
    for (int64_t i = 0; i < rows; i++)
        r->delta[i] = dot(w->d_out + i * w->d_v, r->out + i * w->d_v, w->d_v);
    if (r->sums.dsink)
        add_dsink(w, head, rows, r);
    if (!r->dq)
        return;
    product_nt(rows, columns, w->d_v, 1, w->d_out, value_rows(w, keys), w->ds);
    for (int64_t i = 0; i < rows; i++)
        query_gradient(w, i, columns, r);
    if (r->sums.dbias)
        add_dbias(w, rows, keys, r);
    cap_gradient(w, rows * columns);
    product_nn(rows, w->d_qk, columns, w->scale, w->ds, key_rows(w, keys), r->dq);
}

// A block of queries that see no key.
static void block_nothing(const struct work *w, int head, int64_t rows, const struct results *r)
{
    memset(r->out, 0, (size_t)(rows * w->d_v) * sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        r->lse[i] = input_sink(w->c, head);
    if (r->delta)
        memset(r->delta, 0, (size_t)rows * sizeof(double));
    if (r->dq)
        memset(r->dq, 0, (size_t)(rows * w->d_qk) * sizeof(double));
    if (r->terms)
        memset(r->terms, 0, (size_t)rows * sizeof(double));
}

static void queries_block(struct work *w, int head, struct range queries, struct results r)
{
    struct range keys = keys_seen(&w->scope, queries, w->keys);
    if (range_length(keys) == 0) {
        block_nothing(w, head, range_length(queries), &r);
        return;
    }
    double unwanted[QUERIES_MAX];
    block_out(w, head, queries, keys, &r);
    if (!r.delta && !r.dq)
        return;
    if (!r.delta)
        r.delta = unwanted;
    block_gradient(w, head, queries, keys, &r);
}

// The output arrays, advanced by `rows` queries.
static struct results results_at(const struct work *w, struct results r, int64_t rows)
{
    r.out += rows * w->d_v;
    r.lse += rows;
    if (r.delta)
        r.delta += rows;
    if (r.dq)
        r.dq += rows * w->d_qk;
    if (r.terms)
        r.terms += rows;
    if (r.sums.dbias)
        r.sums.dbias += rows * r.sums.dbias_stride;
    return r;
}

enum status reference_queries(const struct cp_case *c, int sequence, int head, int64_t begin,
                              int64_t end, double *out, double *lse, double *delta, double *dq,
                              double *terms, const struct reference_sums *sums, struct error *error)
{
    struct scope scope = scope_of(c, sequence);
    struct range queries = {begin, end}, all_keys = {0, scope.mask.keys};
    struct results results = {.out = out, .lse = lse, .delta = delta, .dq = dq, .terms = terms};
    struct work w;
    enum status status = work_init(&w, &scope, keys_seen(&scope, queries, all_keys), error);
    if (status != STATUS_OK)
        return status;
    if (sums)
        results.sums = *sums;
    int kv_head = head / (c->heads / c->kv_heads);
    load(&w, INPUT_K, kv_head, w.keys, w.k);
    load(&w, INPUT_V, kv_head, w.keys, w.v);
    for (int64_t first = begin; first < end; first += w.block) {
        struct range block = {first, first + w.block < end ? first + w.block : end};
        queries_block(&w, head, block, results_at(&w, results, first - begin));
    }
    work_fini(&w);
    return STATUS_OK;
}

// ---- the key side -------------------------------------------------------------------------------

// Computes P into w->p and dS into w->ds for a block of queries. `lse` and `delta` begin with its
// first query. Adds the squared terms of each key to `terms` unless that is NULL.
static void block_scores(struct work *w, int head, struct range queries, struct range keys,
                         const double *lse, const double *delta, double *terms)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    block_logits(w, head, queries, keys);
    product_nt(rows, columns, w->d_v, 1, w->d_out, value_rows(w, keys), w->ds);
    for (int64_t i = 0; i < rows; i++) {
        struct range seen = mask_keys(&w->scope.mask, queries.begin + i);
        for (int64_t j = 0; j < columns; j++) {
            double *p = &w->p[i * columns + j], *ds = &w->ds[i * columns + j];
            int64_t key = keys.begin + j;
            *p = key >= seen.begin && key < seen.end ? exp(*p - lse[i]) : 0;
            if (terms)
                terms[j] += term_square(w, i * columns + j, delta[i]);
            *ds = *p * (*ds - delta[i]);
        }
    }
    cap_gradient(w, rows * columns);
}

// Adds the contribution of the queries of one head.
static void keys_head(struct work *w, int head, const double *lse, const double *delta, double *dk,
                      double *dv, double *terms)
{
    struct range all = mask_queries_of(&w->scope.mask, w->keys);
    for (int64_t first = all.begin; first < all.end; first += w->block) {
        struct range queries = {first, first + w->block < all.end ? first + w->block : all.end};
        struct range keys = keys_seen(&w->scope, queries, w->keys);
        int64_t rows = range_length(queries), columns = range_length(keys);
        int64_t skipped = keys.begin - w->keys.begin;
        if (columns == 0)
            continue;
        load(w, INPUT_Q, head, queries, w->q);
        load(w, INPUT_DO, head, queries, w->d_out);
        block_scores(w, head, queries, keys, lse + first, delta + first,
                     terms ? terms + skipped : NULL);
        add_product_tn(columns, w->d_v, rows, 1, w->p, w->d_out, dv + skipped * w->d_v);
        add_product_tn(columns, w->d_qk, rows, w->scale, w->ds, w->q, dk + skipped * w->d_qk);
    }
}

enum status reference_keys(const struct cp_case *c, int sequence, int kv_head, int64_t begin,
                           int64_t end, const double *lse, const double *delta, double *dk,
                           double *dv, double *terms, struct error *error)
{
    struct scope scope = scope_of(c, sequence);
    struct work w;
    enum status status = work_init(&w, &scope, (struct range){begin, end}, error);
    if (status != STATUS_OK)
        return status;
    load(&w, INPUT_K, kv_head, w.keys, w.k);
    load(&w, INPUT_V, kv_head, w.keys, w.v);
    memset(dk, 0, (size_t)((end - begin) * w.d_qk) * sizeof(double));
    memset(dv, 0, (size_t)((end - begin) * w.d_v) * sizeof(double));
    if (terms)
        memset(terms, 0, (size_t)(end - begin) * sizeof(double));
    int group = c->heads / c->kv_heads;
    for (int i = 0; i < group; i++)
        keys_head(&w, kv_head * group + i, lse + i * scope.mask.queries,
                  delta + i * scope.mask.queries, dk, dv, terms);
    for (int64_t j = 0; j < end - begin && terms; j++)
        terms[j] = w.scale * sqrt(terms[j]);
    work_fini(&w);
    return STATUS_OK;
}
