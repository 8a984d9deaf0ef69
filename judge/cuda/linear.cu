// SPDX-License-Identifier: Apache-2.0
// The reference of linear layers on a device, computed as in judge/linear_reference.c: values in
// fp64, error bounds and the twin's values, [rows][columns] each.
#include "judge/cuda/linear_cuda.h"

#include "judge/cuda/linear_parts.cuh"

// Maximum number of elements of a tensor between the layers at a time, and of tokens at a time.
// Tokens are rows of a product, which the y dimension of a grid limits.
#define PIECE_MAX  (1 << 20)
#define TOKENS_MAX (1 << 18)

// ---- between the layers -------------------------------------------------------------------------

// Activation, forward and backward: computes a and dh from h and da. Gated: a row of h and dh has
// the features of the gate first, then the features that the gate multiplies.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void activate_kernel(
    struct device_triple h, struct device_triple a, struct device_triple da,
    struct device_triple dh, enum activation activation, bool gated, struct rounding r)
{
    FOR_EACH(i, a.rows * a.columns)
    {
        int64_t g = i / a.columns * h.columns + i % a.columns, u = gated ? g + a.columns : g;
        struct point value = point_activation(activation, false, point_at(h, g));
        struct point slope = point_activation(activation, true, point_at(h, g));
        struct point d = point_at(da, i), up = point_at(h, u), at_g = point_times(d, slope);
        if (gated) {
            at_g = point_times(point_times(d, up), slope);
            point_put(dh, u, point_rounded<Dtype>(r, point_times(d, value)));
            value = point_times(value, up);
        }
        point_put(a, i, point_rounded<Dtype>(r, value));
        point_put(dh, g, point_rounded<Dtype>(r, at_g));
    }
}

// The tensors between the layers for some tokens and some features of a rank; see struct middle.
// The axes give their places in the whole layer.
struct device_middle {
    struct linear_axis tokens, features, in, out;
    struct device_triple h, a, da, dh;
};

static struct linear_axis all_of(int64_t count)
{
    struct linear_axis axis = {0, 0, count, count};
    return axis;
}

static struct linear_axis some_of(struct linear_some some, int64_t base, int64_t stride)
{
    struct linear_axis axis = {base + some.first, stride, some.length, some.count};
    return axis;
}

static struct device_middle middle_of(struct work *w, int64_t tokens, int64_t features)
{
    struct device_middle m;
    int64_t wide = w->sizes.gates * features;
    m.in = all_of(w->sizes.in);
    m.out = all_of(w->sizes.out);
    m.h = take(w, tokens, wide);
    m.a = take(w, tokens, features);
    m.da = take(w, tokens, features);
    m.dh = take(w, tokens, wide);
    return m;
}

static void middle_set(struct work *w, struct device_middle *m, struct linear_axis tokens,
                       struct linear_axis features)
{
    int64_t n = features.count, wide = w->sizes.gates * n;
    m->tokens = tokens;
    m->features = features;
    resize(w, &m->h, tokens.count, wide);
    resize(w, &m->a, tokens.count, n);
    resize(w, &m->da, tokens.count, n);
    resize(w, &m->dh, tokens.count, wide);
}

// h = x w1' + b1.
static void layer_first(struct work *w, struct device_middle *m)
{
    struct device_product p;
    p.m = m->tokens.count;
    p.n = m->h.columns;
    p.k = w->sizes.in;
    p.a = factor_drawn(drawn_of(w->l, LINEAR_X, m->tokens, m->in), false);
    p.b = factor_drawn(drawn_of(w->l, LINEAR_W1, m->features, m->in), true);
    p.sum = (double)w->sizes.in + 1;
    p.c_transposed = false;
    p.c = m->h;
    product(w, &p);
    struct drawn bias = drawn_of(w->l, LINEAR_B1, all_of(1), m->features);
    finish(w, &m->h, w->l->bias ? &bias : nullptr);
}

// da = dy w2.
static void layer_second_backward(struct work *w, struct device_middle *m)
{
    struct device_product p;
    p.m = m->tokens.count;
    p.n = m->features.count;
    p.k = w->sizes.out;
    p.a = factor_drawn(drawn_of(w->l, LINEAR_DY, m->tokens, m->out), false);
    p.b = factor_drawn(drawn_of(w->l, LINEAR_W2, m->out, m->features), false);
    p.sum = (double)w->sizes.out;
    p.c_transposed = false;
    p.c = m->da;
    product(w, &p);
    finish(w, &m->da, nullptr);
}

static void middle_compute(struct work *w, struct device_middle *m)
{
    const struct linear *l = w->l;
    if (w->sizes.in > 0)
        layer_first(w, m);
    else
        exact(w, &m->a, drawn_of(l, LINEAR_X, m->tokens, m->features));
    if (l->training && w->sizes.out > 0)
        layer_second_backward(w, m);
    else if (l->training)
        exact(w, &m->dh, drawn_of(l, LINEAR_DY, m->tokens, m->features));
    if (l->layer != LINEAR_MLP || w->failed || m->a.rows * m->a.columns == 0)
        return;
    with_dtype(l->dtype, [&](auto type) {
        activate_kernel<decltype(type)>
            <<<blocks_for(m->a.rows * m->a.columns), THREADS, 0, w->q->stream>>>(
                m->h, m->a, m->da, m->dh, w->activation, w->sizes.gates == 2, rounding_of(w));
    });
    queue_launched(w->q, "the reference of a layer");
}

// ---- sums over ranks ----------------------------------------------------------------------------

// Adds the part of a rank to the sum over ranks, as a collective of the dtype does: it rounds the
// parts, and the sum after each addition. A single part is rounded only if a bias follows.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void part_kernel(struct device_triple part,
                                                       struct device_triple sum, int ranks,
                                                       bool biased, struct rounding r)
{
    FOR_EACH(i, part.rows * part.columns)
    {
        struct point p = point_at(part, i);
        if (ranks > 1 || biased)
            p = point_rounded<Dtype>(r, p);
        struct point total = point_at(sum, i);
        total.value += p.value;
        total.twin += p.twin;
        total.bound += p.bound + (ranks + 1) * FP32 * fabs(p.value) +
                       point_bound_added(ranks, r.unit, p.value, p.bound);
        if (ranks > 1)
            total.twin = (double)Dtype::value(Dtype::round((float)total.twin));
        point_put(sum, i, total);
    }
}

static void part_add(struct work *w, bool biased, const struct device_triple *part,
                     const struct device_triple *sum)
{
    if (w->failed || part->rows * part->columns == 0)
        return;
    with_dtype(w->l->dtype, [&](auto type) {
        part_kernel<decltype(type)>
            <<<blocks_for(part->rows * part->columns), THREADS, 0, w->q->stream>>>(
                *part, *sum, w->l->world_size, biased, rounding_of(w));
    });
    queue_launched(w->q, "the reference of a layer");
}

// Computes a rank's part of y and dx, at most `most` features at a time.
static void part_compute(struct work *w, int rank, struct device_middle *m,
                         struct linear_axis tokens, int64_t most, const struct device_triple *y,
                         const struct device_triple *dx)
{
    int64_t count = share_count(w->sizes.middle, rank, w->l->world_size);
    int64_t base = share_first(w->sizes.middle, rank, w->l->world_size);
    clear(w, y);
    clear(w, dx);
    for (int64_t first = 0; first < count && !w->failed; first += most) {
        int64_t n = count - first < most ? count - first : most;
        struct linear_some some = {first, n, n};
        struct device_product p;
        middle_set(w, m, tokens, some_of(some, base, w->sizes.middle));
        middle_compute(w, m);
        p.m = tokens.count;
        p.c_transposed = false;
        p.n = y->columns;
        p.k = n;
        p.a = factor_of(&m->a, false);
        p.b = factor_drawn(drawn_of(w->l, LINEAR_W2, m->out, m->features), true);
        p.sum = (double)count;
        p.c = *y;
        product(w, &p);
        p.n = dx->columns;
        p.k = m->dh.columns;
        p.a = factor_of(&m->dh, false);
        p.b = factor_drawn(drawn_of(w->l, LINEAR_W1, m->features, m->in), false);
        p.sum = (double)(count * w->sizes.gates);
        p.c = *dx;
        product(w, &p);
    }
}

// `rival`: with the other definition of GELU.
static struct work work_of(void *queue, const struct linear *l, bool rival)
{
    struct work w;
    w.q = (struct cuda_queue *)queue;
    w.l = l;
    w.sizes = linear_sizes(l);
    w.activation = l->activation;
    if (rival)
        w.activation = l->activation == ACTIVATION_GELU ? ACTIVATION_GELU_TANH : ACTIVATION_GELU;
    w.unit = linear_roundoff(l->dtype);
    w.least = linear_tiny(l->dtype);
    w.failed = false;
    return w;
}

// Copies the results to the host and waits for the queue. On an error it frees `out`.
static enum status results_fetch(struct work *w, const struct device_triple results[LINEAR_TENSORS],
                                 struct triple out[LINEAR_TENSORS], struct error *error)
{
    bool room = true;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS && room && !w->failed; t++) {
        size_t bytes = 3 * (size_t)(results[t].rows * results[t].columns) * sizeof(double);
        if (bytes == 0)
            continue;
        room = triple_take(&out[t], results[t].rows, results[t].columns);
        if (room)
            queue_note(w->q,
                       cudaMemcpyAsync(out[t].value, results[t].value, bytes,
                                       cudaMemcpyDeviceToHost, w->q->stream),
                       "the reference of a layer");
    }
    enum status status = queue_finish(w->q, error);
    if (status == STATUS_OK && !room)
        status =
            error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the reference of a layer");
    if (status != STATUS_OK)
        linear_free(out);
    return status;
}

static enum status device_sums(void *queue, const struct linear *l, struct linear_some tokens,
                               bool rival, struct triple out[LINEAR_TENSORS], struct error *error)
{
    struct work w = work_of(queue, l, rival);
    struct device_triple results[LINEAR_TENSORS];
    int64_t features = share_count(w.sizes.middle, 0, l->world_size);
    int64_t most = PIECE_MAX / tokens.count, in = l->training ? w.sizes.in : 0;
    most = most < features ? most : features;
    memset(out, 0, LINEAR_TENSORS * sizeof(*out));
    memset(results, 0, sizeof(results));
    struct device_triple *y = &results[LINEAR_Y], *dx = &results[LINEAR_DX];
    *y = take(&w, tokens.count, w.sizes.out);
    *dx = take(&w, tokens.count, in);
    struct device_triple y_part = take(&w, tokens.count, w.sizes.out);
    struct device_triple dx_part = take(&w, tokens.count, in);
    struct device_middle m = middle_of(&w, tokens.count, most);
    for (int rank = 0; rank < l->world_size && !w.failed; rank++) {
        part_compute(&w, rank, &m, some_of(tokens, 0, 0), most, &y_part, &dx_part);
        part_add(&w, l->bias, &y_part, y);
        part_add(&w, false, &dx_part, dx);
    }
    struct drawn bias = drawn_of(l, LINEAR_B2, all_of(1), all_of(w.sizes.out));
    finish(&w, y, l->bias ? &bias : nullptr);
    finish(&w, dx, nullptr);
    return results_fetch(&w, results, out, error);
}

// ---- results of a rank's own features -----------------------------------------------------------

// Adds the sum of d over `rows` tokens to a bias gradient. `terms`: number of tokens of the whole
// sum, for the bound.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void columns_kernel(struct factor d, int64_t rows,
                                                          struct device_triple to, double terms)
{
    FOR_EACH(column, to.columns)
    {
        struct point sum = point_at(to, column);
        for (int64_t row = 0; row < rows; row++) {
            struct point p = factor_at<Dtype>(d, row, column);
            sum.value += p.value;
            sum.twin += p.twin;
            sum.bound += p.bound + terms * FP32 * fabs(p.value);
        }
        point_put(to, column, sum);
    }
}

static void columns_add(struct work *w, const struct factor *d, int64_t rows,
                        const struct device_triple *to)
{
    if (w->failed || rows == 0 || to->rows * to->columns == 0)
        return;
    with_dtype(w->l->dtype, [&](auto type) {
        columns_kernel<decltype(type)><<<blocks_for(to->columns), THREADS, 0, w->q->stream>>>(
            *d, rows, *to, (double)w->l->tokens);
    });
    queue_launched(w->q, "the reference of a layer");
}

static void gradients_add(struct work *w, const struct device_middle *m,
                          const struct device_triple results[LINEAR_TENSORS])
{
    struct drawn x = drawn_of(w->l, LINEAR_X, m->tokens, m->in);
    struct drawn dy = drawn_of(w->l, LINEAR_DY, m->tokens, m->out);
    struct factor dh_rows = factor_of(&m->dh, false), dy_rows = factor_drawn(dy, false);
    struct device_product p;
    p.k = m->tokens.count;
    p.sum = (double)w->l->tokens;
    p.m = m->dh.columns;
    p.n = w->sizes.in;
    p.a = factor_of(&m->dh, true);
    p.b = factor_drawn(x, false);
    p.c_transposed = false;
    p.c = results[LINEAR_DW1];
    product(w, &p);
    p.m = m->a.columns;
    p.n = w->sizes.out;
    p.a = factor_of(&m->a, true);
    p.b = dy_rows;
    p.c_transposed = true;
    p.c = results[LINEAR_DW2];
    product(w, &p);
    columns_add(w, &dh_rows, m->tokens.count, &results[LINEAR_DB1]);
    columns_add(w, &dy_rows, m->tokens.count, &results[LINEAR_DB2]);
}

static void rows_copy(struct work *w, const struct device_triple *from, int64_t first,
                      const struct device_triple *to)
{
    const double *sources[] = {from->value, from->bound, from->twin};
    double *places[] = {to->value, to->bound, to->twin};
    size_t bytes = (size_t)(from->rows * from->columns) * sizeof(double);
    for (int i = 0; i < 3 && !w->failed && bytes > 0; i++)
        queue_note(w->q,
                   cudaMemcpyAsync(places[i] + first * to->columns, sources[i], bytes,
                                   cudaMemcpyDeviceToDevice, w->q->stream),
                   "the reference of a layer");
}

static void shares_take(struct work *w, int64_t features, struct device_triple *results)
{
    const struct linear *l = w->l;
    int64_t wide = w->sizes.gates * features, tokens = l->tokens;
    bool column = l->layer == LINEAR_COLUMN, row = l->layer == LINEAR_ROW, training = l->training;
    bool first = w->sizes.in > 0, second = w->sizes.out > 0, bias = training && l->bias;
    results[LINEAR_Y] = take(w, column ? tokens : 0, column ? features : 0);
    results[LINEAR_DX] = take(w, row && training ? tokens : 0, row && training ? features : 0);
    results[LINEAR_DW1] = take(w, training && first ? wide : 0, training ? w->sizes.in : 0);
    results[LINEAR_DB1] = take(w, 1, bias && first ? wide : 0);
    results[LINEAR_DW2] = take(w, training ? w->sizes.out : 0, training && second ? features : 0);
    results[LINEAR_DB2] = take(w, 1, bias && second ? w->sizes.out : 0);
}

static enum status device_shares(void *queue, const struct linear *l, int rank,
                                 struct linear_some features, bool rival,
                                 struct triple out[LINEAR_TENSORS], struct error *error)
{
    struct work w = work_of(queue, l, rival);
    struct device_triple results[LINEAR_TENSORS];
    int64_t most = PIECE_MAX / (features.count + 1) + 1;
    most = most < TOKENS_MAX ? most : TOKENS_MAX;
    most = most < l->tokens ? most : l->tokens;
    struct linear_axis axis =
        some_of(features, share_first(w.sizes.middle, rank, l->world_size), w.sizes.middle);
    memset(out, 0, LINEAR_TENSORS * sizeof(*out));
    memset(results, 0, sizeof(results));
    shares_take(&w, features.count, results);
    struct device_middle m = middle_of(&w, most, features.count);
    for (int64_t first = 0; first < l->tokens && !w.failed; first += most) {
        int64_t n = l->tokens - first < most ? l->tokens - first : most;
        struct linear_some some = {first, n, n};
        middle_set(&w, &m, some_of(some, 0, 0), axis);
        middle_compute(&w, &m);
        if (l->layer == LINEAR_COLUMN)
            rows_copy(&w, &m.h, first, &results[LINEAR_Y]);
        if (l->layer == LINEAR_ROW && l->training)
            rows_copy(&w, &m.da, first, &results[LINEAR_DX]);
        if (l->training)
            gradients_add(&w, &m, results);
    }
    for (int t = LINEAR_DW1; t <= LINEAR_DB2; t++)
        finish(&w, &results[t], nullptr);
    return results_fetch(&w, results, out, error);
}

// ---- tensors of a rank --------------------------------------------------------------------------

template <class Dtype>
__global__ __launch_bounds__(THREADS) void fill_kernel(struct drawn d, int64_t rows,
                                                       int64_t columns, void *data)
{
    typename Dtype::stored *to = (typename Dtype::stored *)data;
    FOR_EACH(i, rows * columns)
    to[i] = Dtype::round(drawn_at<Dtype>(d, i / columns, i % columns));
}

static enum status device_fill(void *queue, const struct linear *l, int rank,
                               enum linear_tensor tensor, void *data, struct error *error)
{
    struct cuda_queue *q = (struct cuda_queue *)queue;
    struct linear_shape shape = linear_shape(l, rank, tensor);
    struct linear_axis rows, columns;
    if (shape.rows * shape.columns == 0)
        return STATUS_OK;
    linear_input_axes(l, rank, tensor, &rows, &columns);
    struct drawn d = drawn_of(l, tensor, rows, columns);
    with_dtype(l->dtype, [&](auto type) {
        fill_kernel<decltype(type)>
            <<<blocks_for(shape.rows * shape.columns), THREADS, 0, q->stream>>>(
                d, shape.rows, shape.columns, data);
    });
    queue_launched(q, "the inputs of a layer");
    return queue_report(q, error);
}

template <class Dtype>
__global__ __launch_bounds__(THREADS) void read_kernel(const void *data, int64_t row_length,
                                                       struct linear_axis rows_axis,
                                                       struct linear_axis columns_axis,
                                                       int64_t rows, int64_t columns, double *to)
{
    const typename Dtype::stored *from = (const typename Dtype::stored *)data;
    FOR_EACH(i, rows * columns)
    {
        int64_t row = axis_at(rows_axis, i / columns), column = axis_at(columns_axis, i % columns);
        to[i] = (double)Dtype::value(from[row * row_length + column]);
    }
}

static enum status device_read(void *queue, const struct linear_view *v, int64_t rows,
                               int64_t columns, double *values, struct error *error)
{
    struct cuda_queue *q = (struct cuda_queue *)queue;
    size_t bytes = (size_t)(rows * columns) * sizeof(double);
    struct linear_shape shape = linear_shape(v->l, v->rank, v->tensor);
    struct linear_axis row_axis, column_axis;
    linear_view_axes(v, columns, &row_axis, &column_axis);
    double *room = (double *)queue_scratch(q, bytes + 1);
    if (room && bytes > 0) {
        with_dtype(v->l->dtype, [&](auto type) {
            read_kernel<decltype(type)><<<blocks_for(rows * columns), THREADS, 0, q->stream>>>(
                v->data, shape.columns, row_axis, column_axis, rows, columns, room);
        });
        queue_launched(q, "the results of a layer");
        queue_note(q, cudaMemcpyAsync(values, room, bytes, cudaMemcpyDeviceToHost, q->stream),
                   "the results of a layer");
    }
    return queue_finish(q, error);
}

extern "C" const struct linear_tools linear_tools_cuda = {device_fill, device_sums, device_shares,
                                                          device_read};
