// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/problem.h"

#include <math.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"

int64_t problem_one_of(const int64_t *list, int count)
{
    return list[harness_below(count)];
}

static void draw_shape(struct problem *p, enum case_dtype dtype)
{
    struct attention_shape *s = &p->shape;
    s->dtype = dtype;
    s->group = (int32_t)ONE_OF(1, 1, 1, 2, 3, 4, 8);
    s->head_phase = (int32_t)(harness_below(3) == 0 ? harness_below(s->group) : 0);
    s->heads = (int32_t)harness_between(1, 9);
    s->kv_heads = (s->heads + s->head_phase - 1) / s->group + 1;
    s->d_qk = (int32_t)ONE_OF(8, 16, 40, 64, 64, 64, 72, 96, 128, 128, 128, 192, 192, 256, 0);
    s->d_v = (int32_t)(harness_below(3) != 0 ? s->d_qk : ONE_OF(8, 32, 64, 128, 128, 200, 256, 0));
    if (s->d_qk == 0)
        s->d_qk = (int32_t)harness_between(1, 256);
    if (s->d_v == 0)
        s->d_v = (int32_t)harness_between(1, 256);
    s->row_step = ONE_OF(1, 1, 1, 2, 3);
    s->scale = (harness_below(12) == 0 ? -1 : 1) / sqrt(s->d_qk);
    s->softcap = harness_below(4) == 0 ? (double)ONE_OF(1, 5, 50) : 0;
    p->skew = harness_below(8) == 0 ? (size_t)dtype_bytes(dtype) : 0;
}

static int64_t draw_length(void)
{
    int64_t most = harness_small() ? 150 : 500;
    int64_t length = ONE_OF(0, 1, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 256, 257);
    return harness_below(3) == 0 || length > most ? harness_between(0, most) : length;
}

static void draw_mask(struct slice *slice)
{
    slice->offset = harness_below(3) == 0 ? 0 : harness_between(-300, 300);
    slice->left = harness_below(2) == 0 ? SLICE_UNBOUNDED : ONE_OF(0, 1, 7, 64, 100, 200);
    slice->right = harness_below(2) == 0 ? SLICE_UNBOUNDED : ONE_OF(0, 0, 0, 1, 33, 128);
}

// Draws slices of one sequence. Their rows are congruent to `residue` modulo row_step.
static void draw_slices(struct problem *p, int64_t residue)
{
    int64_t q_len = draw_length(), kv_len = draw_length(), step = p->shape.row_step;
    int count = (int)ONE_OF(1, 1, 2, 4);
    for (int i = 0; i < count && p->slice_count < PROBLEM_SLICES_MAX; i++) {
        struct slice *slice = &p->slices[p->slice_count++];
        bool whole = harness_below(2) == 0;
        int64_t q_begin = whole ? 0 : harness_between(0, q_len);
        int64_t kv_begin = whole ? 0 : harness_between(0, kv_len);
        slice->q_row = residue + q_begin * step;
        slice->kv_row = residue + kv_begin * step;
        slice->q_len = whole ? q_len : harness_between(0, q_len - q_begin);
        slice->kv_len = whole ? kv_len : harness_between(0, kv_len - kv_begin);
        draw_mask(slice);
        int64_t q_end = slice->q_row + slice->q_len * step;
        int64_t kv_end = slice->kv_row + slice->kv_len * step;
        p->q_rows = q_end > p->q_rows ? q_end : p->q_rows;
        p->kv_rows = kv_end > p->kv_rows ? kv_end : p->kv_rows;
    }
}

static void draw_bias(struct problem *p)
{
    struct attention_shape *s = &p->shape;
    int64_t rows = 0, columns = 0, unit = ONE_OF(1, 8); // 8: rows begin at multiples of 16 bytes
    if (harness_below(3) != 0)
        return;
    s->bias_row_step = harness_below(2);
    for (int i = 0; i < p->slice_count; i++) {
        struct slice *slice = &p->slices[i];
        slice->bias_row = harness_below(5);
        slice->bias_column = harness_below(9) / unit * unit;
        int64_t last = slice->bias_row + slice->q_len * s->bias_row_step + 1;
        rows = last > rows ? last : rows;
        last = slice->bias_column + slice->kv_len;
        columns = last > columns ? last : columns;
    }
    s->bias_row_stride = (columns + harness_below(3) + unit - 1) / unit * unit;
    s->bias_head_stride = harness_below(2) * rows * s->bias_row_stride;
    p->bias_count = rows * s->bias_row_stride + (s->heads - 1) * s->bias_head_stride;
}

struct problem problem_draw(enum case_dtype dtype)
{
    struct problem p = {.magnitude = (float)ONE_OF(1, 1, 1, 3)};
    draw_shape(&p, dtype);
    for (int64_t residue = 0; residue < p.shape.row_step; residue++)
        draw_slices(&p, residue);
    draw_bias(&p);
    p.q_rows += PROBLEM_PAD_ROWS;
    p.kv_rows += PROBLEM_PAD_ROWS;
    p.shape.q_rows = p.q_rows + harness_below(3);
    return p;
}

struct problem problem_rectangle(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
                                 int64_t kv_len)
{
    return (struct problem){.shape = {.dtype = dtype,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .d_qk = d_qk,
                                      .d_v = d_v,
                                      .group = 1,
                                      .q_rows = q_len,
                                      .row_step = 1,
                                      .scale = 1 / sqrt(d_qk)},
                            .slices = {{.q_len = q_len,
                                        .kv_len = kv_len,
                                        .left = SLICE_UNBOUNDED,
                                        .right = SLICE_UNBOUNDED}},
                            .slice_count = 1,
                            .q_rows = q_len,
                            .kv_rows = kv_len,
                            .magnitude = 1};
}

static void slice_note(const struct slice *s)
{
    harness_note("  q %lld+%lld kv %lld+%lld offset %lld left %lld right %lld", (long long)s->q_row,
                 (long long)s->q_len, (long long)s->kv_row, (long long)s->kv_len,
                 (long long)s->offset, s->left >= SLICE_UNBOUNDED ? -1 : (long long)s->left,
                 s->right >= SLICE_UNBOUNDED ? -1 : (long long)s->right);
}

void problem_note(const struct problem *p)
{
    const struct attention_shape *s = &p->shape;
    harness_note("dtype %d heads %d/%d group %d phase %d d %d/%d step %lld scale %g cap %g bias "
                 "%lld (%lld %lld %lld) ordered %d skew %zu magnitude %g",
                 (int)s->dtype, s->heads, s->kv_heads, s->group, s->head_phase, s->d_qk, s->d_v,
                 (long long)s->row_step, s->scale, s->softcap, (long long)p->bias_count,
                 (long long)s->bias_head_stride, (long long)s->bias_row_stride,
                 (long long)s->bias_row_step, s->deterministic, p->skew, p->magnitude);
    for (int i = 0; i < p->slice_count; i++)
        slice_note(&p->slices[i]);
}
