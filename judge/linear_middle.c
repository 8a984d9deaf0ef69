// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_middle.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- products -----------------------------------------------------------------------------------

// Returns scratch of at least `count` doubles. NULL: memory is short.
static double *terms_room(struct reference *r, int64_t count)
{
    if (count > r->terms_count) {
        free(r->terms);
        r->terms = malloc((size_t)count * sizeof(double));
        r->terms_count = r->terms ? count : 0;
        r->failed = r->failed || !r->terms;
    }
    return r->terms;
}

static void multiply(const struct factors *f, const double *a, const double *b, struct triple *to,
                     double *c)
{
    int m = (int)to->rows, n = (int)to->columns, lda = (int)f->a->columns, ldb = (int)f->b_columns;
    if (f->exact_first) {
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, (int)f->a->rows, 1, b, ldb, a,
                    lda, 1, c, n);
        return;
    }
    int k = (int)(f->a_transposed ? f->a->rows : f->a->columns);
    cblas_dgemm(CblasRowMajor, f->a_transposed ? CblasTrans : CblasNoTrans,
                f->b_transposed ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 1, c, n);
}

void product_add(struct reference *r, const struct factors *f, int64_t b_count, struct triple *to)
{
    int64_t a_count = f->a->rows * f->a->columns;
    if (a_count == 0 || to->rows * to->columns == 0 || b_count == 0)
        return;
    multiply(f, f->a->value, f->b, to, to->value);
    double *sizes = r->rival ? NULL : terms_room(r, a_count + b_count);
    if (!sizes)
        return;
    multiply(f, f->a->twin, f->b, to, to->twin);
    for (int64_t i = 0; i < a_count; i++)
        sizes[i] = f->a->bound[i] + f->sum * FP32 * fabs(f->a->value[i]);
    for (int64_t i = 0; i < b_count; i++)
        sizes[a_count + i] = fabs(f->b[i]);
    multiply(f, sizes, sizes + a_count, to, to->bound);
}

// ---- between the layers -------------------------------------------------------------------------

void middle_free(struct middle *m)
{
    free(m->memory);
    free(m->h.value);
    free(m->a.value);
    free(m->da.value);
    free(m->dh.value);
}

bool middle_take(const struct reference *r, struct middle *m, int64_t tokens, int64_t features)
{
    const struct linear_sizes *s = &r->sizes;
    int64_t wide = s->gates * features;
    memset(m, 0, sizeof(*m));
    m->memory = malloc((size_t)((tokens + wide) * s->in + wide + (tokens + features) * s->out + 1) *
                       sizeof(double));
    m->x = m->memory;
    m->w1 = m->x + tokens * s->in;
    m->b1 = m->w1 + wide * s->in;
    m->w2 = m->b1 + wide;
    m->dy = m->w2 + features * s->out;
    return triple_take(&m->h, tokens, wide) && triple_take(&m->a, tokens, features) &&
           triple_take(&m->da, tokens, features) && triple_take(&m->dh, tokens, wide) && m->memory;
}

void middle_resize(struct middle *m, int gates, int64_t tokens, int64_t features)
{
    m->tokens = m->h.rows = m->a.rows = m->da.rows = m->dh.rows = tokens;
    m->features = m->a.columns = m->da.columns = features;
    m->h.columns = m->dh.columns = gates * features;
    struct triple *all[] = {&m->h, &m->a, &m->da, &m->dh};
    for (int i = 0; i < 4; i++) {
        all[i]->bound = all[i]->value + all[i]->rows * all[i]->columns;
        all[i]->twin = all[i]->bound + all[i]->rows * all[i]->columns;
        triple_clear(all[i]);
    }
}

struct owned owned_by(const struct reference *r, int rank, const struct linear_some *some)
{
    return (struct owned){share_first(r->sizes.middle, rank, r->l->world_size), some};
}

// Draws the elements of a row at the given features, which may have gaps.
static void draw_features(const struct linear *l, enum linear_tensor tensor, int64_t row,
                          int64_t first, const struct linear_some *some, double *values)
{
    if (some->count == some->length)
        linear_draw(l, tensor, row, first + some->first, some->count, values);
    for (int64_t i = 0; i < some->count && some->count < some->length; i++)
        linear_draw(l, tensor, row, first + linear_some_at(*some, i), 1, values + i);
}

void middle_draw_weights(const struct reference *r, struct middle *m, struct owned owned)
{
    const struct linear_sizes *s = &r->sizes;
    for (int gate = 0; gate < s->gates && s->in > 0; gate++) {
        int64_t first = gate * s->middle + owned.first, row = gate * m->features;
        for (int64_t i = 0; i < m->features; i++)
            linear_draw(r->l, LINEAR_W1, first + linear_some_at(*owned.some, i), 0, s->in,
                        m->w1 + (row + i) * s->in);
        draw_features(r->l, LINEAR_B1, 0, first, owned.some, m->b1 + row);
    }
    for (int64_t row = 0; row < s->out; row++)
        draw_features(r->l, LINEAR_W2, row, owned.first, owned.some, m->w2 + row * m->features);
}

// ---- activations ----

static enum activation activation_of(const struct reference *r)
{
    enum activation it = r->l->activation;
    if (r->rival)
        return it == ACTIVATION_GELU ? ACTIVATION_GELU_TANH : ACTIVATION_GELU;
    return it;
}

static struct point at(const struct triple *t, int64_t i)
{
    return (struct point){t->value[i], t->bound[i], t->twin[i]};
}

static void put(struct triple *t, int64_t i, struct point p)
{
    t->value[i] = p.value;
    t->bound[i] = p.bound;
    t->twin[i] = p.twin;
}

// Computes a[i] and dh of one token and feature. g and u: indices in h and dh of the two gates of
// SwiGLU; equal without SwiGLU.
static void activate_one(const struct reference *r, struct middle *m, int64_t i, int64_t g,
                         int64_t u)
{
    const struct triple *h = &m->h;
    enum activation it = activation_of(r);
    struct point value = point_activation(it, false, at(h, g));
    struct point slope = point_activation(it, true, at(h, g));
    struct point d = at(&m->da, i), up = at(h, u);
    if (u == g) {
        put(&m->a, i, value);
        put(&m->dh, g, point_times(d, slope));
        return;
    }
    put(&m->a, i, point_times(value, up));
    put(&m->dh, g, point_times(point_times(d, up), slope));
    put(&m->dh, u, point_times(d, value));
}

static void activate(const struct reference *r, struct middle *m)
{
    for (int64_t token = 0; token < m->tokens; token++)
        for (int64_t f = 0; f < m->features; f++) {
            int64_t i = token * m->features + f, g = token * m->h.columns + f;
            activate_one(r, m, i, g, r->sizes.gates == 2 ? g + m->features : g);
        }
    triple_round(r->l, &m->a);
    triple_round(r->l, &m->dh);
}

// ---- from the inputs on ----

// Completes a triple whose values are inputs: they have no error.
static void exact(struct triple *t)
{
    int64_t count = t->rows * t->columns;
    memset(t->bound, 0, (size_t)count * sizeof(double));
    memcpy(t->twin, t->value, (size_t)count * sizeof(double));
}

// h = x w1' + b1.
static void layer_first(struct reference *r, struct middle *m)
{
    const struct linear_sizes *s = &r->sizes;
    struct triple x = {.rows = m->tokens, .columns = s->in, .value = m->x, .twin = m->x};
    double *zeros = calloc((size_t)(m->tokens * s->in) + 1, sizeof(double));
    x.bound = zeros;
    r->failed = r->failed || !zeros;
    if (!zeros)
        return;
    struct factors f = {
        .a = &x, .b = m->w1, .b_transposed = true, .b_columns = s->in, .sum = (double)s->in + 1};
    product_add(r, &f, m->h.columns * s->in, &m->h);
    free(zeros);
    for (int64_t i = 0; i < m->h.rows * m->h.columns && r->l->bias; i++) {
        double b = m->b1[i % m->h.columns];
        m->h.value[i] += b;
        m->h.twin[i] += b;
        m->h.bound[i] += 2 * FP32 * fabs(b);
    }
    triple_round(r->l, &m->h);
}

// da = dy w2.
static void layer_second_backward(struct reference *r, struct middle *m)
{
    const struct linear_sizes *s = &r->sizes;
    struct triple dy = {.rows = m->tokens, .columns = s->out, .value = m->dy, .twin = m->dy};
    double *zeros = calloc((size_t)(m->tokens * s->out) + 1, sizeof(double));
    dy.bound = zeros;
    r->failed = r->failed || !zeros;
    if (!zeros)
        return;
    struct factors f = {.a = &dy, .b = m->w2, .b_columns = m->features, .sum = (double)s->out};
    product_add(r, &f, s->out * m->features, &m->da);
    free(zeros);
    triple_round(r->l, &m->da);
}

// Computes everything before the sums over ranks or tokens, for the given tokens.
void middle_compute(struct reference *r, struct middle *m, const int64_t *tokens,
                    struct owned owned)
{
    const struct linear *l = r->l;
    const struct linear_sizes *s = &r->sizes;
    for (int64_t i = 0; i < m->tokens; i++) {
        if (s->in > 0)
            linear_draw(l, LINEAR_X, tokens[i], 0, s->in, m->x + i * s->in);
        else
            draw_features(l, LINEAR_X, tokens[i], owned.first, owned.some,
                          m->a.value + i * m->features);
        if (s->out > 0 && l->training)
            linear_draw(l, LINEAR_DY, tokens[i], 0, s->out, m->dy + i * s->out);
        else if (l->training)
            draw_features(l, LINEAR_DY, tokens[i], owned.first, owned.some,
                          m->dh.value + i * m->features);
    }
    if (s->in > 0)
        layer_first(r, m);
    if (s->out > 0 && l->training)
        layer_second_backward(r, m);
    if (l->layer == LINEAR_MLP)
        activate(r, m);
    if (l->layer == LINEAR_ROW)
        exact(&m->a);
    if (l->layer == LINEAR_COLUMN)
        exact(&m->dh);
}
