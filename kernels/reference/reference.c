// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas.h"
#include "kernels/inputs.h"

// Queries that are computed together, and the scores that may exist at a time (8 MiB): fewer
// queries where the keys are very many.
#define QUERIES_MAX 64
#define SCORES_MAX  (INT64_C(1) << 20)

// ---- the mask -----------------------------------------------------------------------------------

// One sequence of a case. Its padding is not there.
struct sequence {
    const struct cp_case *c;
    int64_t queries, keys;
};

static struct sequence sequence_of(const struct cp_case *c, int number)
{
    return (struct sequence){c, case_length(c, SIDE_Q, number), case_length(c, SIDE_KV, number)};
}

// The definition, for one pair of positions.
static bool sees(const struct sequence *s, int64_t query, int64_t key)
{
    const struct cp_case *c = s->c;
    int64_t diagonal = query; // the key that stands opposite the query
    if (c->mask == MASK_CAUSAL_BOTTOM_RIGHT)
        diagonal += s->keys - s->queries;
    if (c->mask != MASK_NONE && key > diagonal)
        return false;
    if (c->window_left != WINDOW_UNBOUNDED && key < diagonal - c->window_left)
        return false;
    return c->window_right == WINDOW_UNBOUNDED || key <= diagonal + c->window_right;
}

struct range {
    int64_t begin, end;
};

static int64_t range_length(struct range r)
{
    return r.end > r.begin ? r.end - r.begin : 0;
}

static bool any_sees(const struct sequence *s, struct range queries, int64_t key)
{
    for (int64_t query = queries.begin; query < queries.end; query++)
        if (sees(s, query, key))
            return true;
    return false;
}

// The keys without those at either end that none of the queries sees.
static struct range keys_seen(const struct sequence *s, struct range queries, struct range keys)
{
    while (keys.begin < keys.end && !any_sees(s, queries, keys.begin))
        keys.begin++;
    while (keys.begin < keys.end && !any_sees(s, queries, keys.end - 1))
        keys.end--;
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

// ---- what a call works on -----------------------------------------------------------------------

struct work {
    const struct cp_case *c;
    int sequence;
    struct sequence lengths;
    double scale;
    int64_t d_qk, d_v;
    struct range keys; // that k and v hold
    int64_t block;     // queries of a block
    double *k, *v;     // [keys][d]
    double *q, *d_out; // [block][d]
    double *p, *ds;    // [block][keys of the block]
    double *all;       // the memory of the six
};

static void work_fini(struct work *w)
{
    free(w->all);
}

static enum status work_init(struct work *w, const struct cp_case *c, int sequence,
                             struct range keys, struct error *error)
{
    int64_t count = range_length(keys), rows = QUERIES_MAX;
    if (count > SCORES_MAX / QUERIES_MAX)
        rows = count < SCORES_MAX ? SCORES_MAX / count : 1;
    *w = (struct work){.c = c,
                       .sequence = sequence,
                       .lengths = sequence_of(c, sequence),
                       .scale = case_scale(c),
                       .d_qk = c->head_dim_qk,
                       .d_v = c->head_dim_v,
                       .keys = keys,
                       .block = rows};
    int64_t dims = w->d_qk + w->d_v;
    size_t bytes = (size_t)((count + rows) * dims + 2 * rows * count) * sizeof(double);
    w->all = malloc(bytes);
    if (!w->all) {
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "no memory for %zu bytes of the reference with %lld keys", bytes,
                  (long long)count);
        return STATUS_RESOURCE_EXHAUSTED;
    }
    w->k = w->all;
    w->v = w->k + count * w->d_qk;
    w->q = w->v + count * w->d_v;
    w->d_out = w->q + rows * w->d_qk;
    w->p = w->d_out + rows * w->d_v;
    w->ds = w->p + rows * count;
    blas_prepare();
    return STATUS_OK;
}

static void load(const struct work *w, enum input_tensor tensor, int head, struct range positions,
                 double *rows)
{
    float values[HEAD_DIM_MAX];
    int d = input_head_dim(w->c, tensor);
    for (int64_t position = positions.begin; position < positions.end; position++) {
        input_token_head(w->c, tensor, w->sequence, position, head, values);
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

// ---- the query side -----------------------------------------------------------------------------

// Scaled scores of one query become probabilities, 0 where it does not see the key. Returns the
// LSE.
static double softmax(const struct work *w, int64_t query, struct range keys, double *row)
{
    double max = -INFINITY, sum = 0;
    for (int64_t key = keys.begin; key < keys.end; key++)
        if (sees(&w->lengths, query, key) && row[key - keys.begin] > max)
            max = row[key - keys.begin];
    for (int64_t key = keys.begin; key < keys.end; key++) {
        double *x = &row[key - keys.begin];
        *x = sees(&w->lengths, query, key) ? exp(*x - max) : 0;
        sum += *x;
    }
    if (sum == 0)
        return -INFINITY;
    for (int64_t i = 0; i < keys.end - keys.begin; i++)
        row[i] /= sum;
    return max + log(sum);
}

static void block_out(struct work *w, int head, struct range queries, struct range keys,
                      double *out, double *lse)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    load(w, INPUT_Q, head, queries, w->q);
    product_nt(rows, columns, w->d_qk, w->scale, w->q, key_rows(w, keys), w->p);
    for (int64_t i = 0; i < rows; i++)
        lse[i] = softmax(w, queries.begin + i, keys, w->p + i * columns);
    product_nn(rows, w->d_v, columns, 1, w->p, value_rows(w, keys), out);
}

// From the probabilities that block_out() leaves behind. dq may be NULL.
static void block_gradient(struct work *w, int head, struct range queries, struct range keys,
                           const double *out, double *delta, double *dq)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    load(w, INPUT_DO, head, queries, w->d_out);
    for (int64_t i = 0; i < rows; i++)
        delta[i] = dot(w->d_out + i * w->d_v, out + i * w->d_v, w->d_v);
    if (!dq)
        return;
    product_nt(rows, columns, w->d_v, 1, w->d_out, value_rows(w, keys), w->ds);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            w->ds[i * columns + j] = w->p[i * columns + j] * (w->ds[i * columns + j] - delta[i]);
    product_nn(rows, w->d_qk, columns, w->scale, w->ds, key_rows(w, keys), dq);
}

static void block_nothing(const struct work *w, int64_t rows, double *out, double *lse,
                          double *delta, double *dq)
{
    memset(out, 0, (size_t)(rows * w->d_v) * sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        lse[i] = -INFINITY;
    if (delta)
        memset(delta, 0, (size_t)rows * sizeof(double));
    if (dq)
        memset(dq, 0, (size_t)(rows * w->d_qk) * sizeof(double));
}

// The results of queries [begin, end) begin where the pointers point.
static void queries_block(struct work *w, int head, struct range queries, double *out, double *lse,
                          double *delta, double *dq)
{
    struct range keys = keys_seen(&w->lengths, queries, w->keys);
    if (range_length(keys) == 0) {
        block_nothing(w, range_length(queries), out, lse, delta, dq);
        return;
    }
    double unwanted[QUERIES_MAX];
    block_out(w, head, queries, keys, out, lse);
    if (delta || dq)
        block_gradient(w, head, queries, keys, out, delta ? delta : unwanted, dq);
}

enum status reference_queries(const struct cp_case *c, int sequence, int head, int64_t begin,
                              int64_t end, double *out, double *lse, double *delta, double *dq,
                              struct error *error)
{
    struct sequence lengths = sequence_of(c, sequence);
    struct range queries = {begin, end}, all_keys = {0, lengths.keys};
    struct work w;
    enum status status = work_init(&w, c, sequence, keys_seen(&lengths, queries, all_keys), error);
    if (status != STATUS_OK)
        return status;
    int kv_head = head / (c->heads / c->kv_heads);
    load(&w, INPUT_K, kv_head, w.keys, w.k);
    load(&w, INPUT_V, kv_head, w.keys, w.v);
    for (int64_t first = begin; first < end; first += w.block) {
        struct range block = {first, first + w.block < end ? first + w.block : end};
        int64_t i = first - begin;
        queries_block(&w, head, block, out + i * w.d_v, lse + i, delta ? delta + i : NULL,
                      dq ? dq + i * w.d_qk : NULL);
    }
    work_fini(&w);
    return STATUS_OK;
}

// ---- the key side -------------------------------------------------------------------------------

// P and dS of a block of queries, whose LSE and delta begin where the pointers point.
static void block_scores(struct work *w, struct range queries, struct range keys, const double *lse,
                         const double *delta)
{
    int64_t rows = range_length(queries), columns = range_length(keys);
    product_nt(rows, columns, w->d_qk, w->scale, w->q, key_rows(w, keys), w->p);
    product_nt(rows, columns, w->d_v, 1, w->d_out, value_rows(w, keys), w->ds);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double *p = &w->p[i * columns + j], *ds = &w->ds[i * columns + j];
            *p = sees(&w->lengths, queries.begin + i, keys.begin + j) ? exp(*p - lse[i]) : 0;
            *ds = *p * (*ds - delta[i]);
        }
}

// Adds what the queries of one head contribute.
static void keys_head(struct work *w, int head, const double *lse, const double *delta, double *dk,
                      double *dv)
{
    int64_t length = w->lengths.queries;
    for (int64_t first = 0; first < length; first += w->block) {
        struct range queries = {first, first + w->block < length ? first + w->block : length};
        struct range keys = keys_seen(&w->lengths, queries, w->keys);
        int64_t rows = range_length(queries), columns = range_length(keys);
        int64_t skipped = keys.begin - w->keys.begin;
        if (columns == 0)
            continue;
        load(w, INPUT_Q, head, queries, w->q);
        load(w, INPUT_DO, head, queries, w->d_out);
        block_scores(w, queries, keys, lse + first, delta + first);
        add_product_tn(columns, w->d_v, rows, 1, w->p, w->d_out, dv + skipped * w->d_v);
        add_product_tn(columns, w->d_qk, rows, w->scale, w->ds, w->q, dk + skipped * w->d_qk);
    }
}

enum status reference_keys(const struct cp_case *c, int sequence, int kv_head, int64_t begin,
                           int64_t end, const double *lse, const double *delta, double *dk,
                           double *dv, struct error *error)
{
    struct work w;
    enum status status = work_init(&w, c, sequence, (struct range){begin, end}, error);
    if (status != STATUS_OK)
        return status;
    load(&w, INPUT_K, kv_head, w.keys, w.k);
    load(&w, INPUT_V, kv_head, w.keys, w.v);
    memset(dk, 0, (size_t)((end - begin) * w.d_qk) * sizeof(double));
    memset(dv, 0, (size_t)((end - begin) * w.d_v) * sizeof(double));
    int group = c->heads / c->kv_heads;
    for (int i = 0; i < group; i++)
        keys_head(&w, kv_head * group + i, lse + i * c->seqlen_q, delta + i * c->seqlen_q, dk, dv);
    work_fini(&w);
    return STATUS_OK;
}
