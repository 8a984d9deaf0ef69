// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/rows.h"

#include <math.h>
#include <string.h>

#include "judge/clones.h"
#include "judge/cpu/loops.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/rules.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

unsigned rows_denormals_flush(void)
{
#ifdef __SSE2__
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}

void rows_denormals_restore(unsigned before)
{
#ifdef __SSE2__
    _mm_setcsr(before);
#else
    (void)before;
#endif
}

struct expected_queries rows_at(const struct cp_case *c, const struct expected_queries *e,
                                int64_t row)
{
    struct expected_queries at = *e;
    at.out += row * c->head_dim_v;
    at.out_twin += row * c->head_dim_v;
    at.lse += row;
    if (!c->training)
        return at;
    at.delta += row;
    at.delta_twin += row;
    at.dq += row * c->head_dim_qk;
    at.dq_twin += row * c->head_dim_qk;
    at.terms += row;
    if (at.sums.dbias_twin)
        at.sums.dbias_twin += row * at.sums.dbias_stride;
    if (at.sums.dbias)
        at.sums.dbias += row * at.sums.dbias_stride;
    return at;
}

void rows_nothing(const struct cp_case *c, bool reference, int head, int64_t rows,
                  const struct expected_queries *e)
{
    int d_qk = c->head_dim_qk, d_v = c->head_dim_v;
    memset(e->out_twin, 0, (size_t)(rows * d_v) * sizeof(float));
    if (c->training) {
        memset(e->dq_twin, 0, (size_t)(rows * d_qk) * sizeof(float));
        memset(e->delta_twin, 0, (size_t)rows * sizeof(double));
        memset(e->terms, 0, (size_t)rows * sizeof(double));
    }
    if (!reference)
        return;
    memset(e->out, 0, (size_t)(rows * d_v) * sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        e->lse[i] = input_sink(c, head);
    if (c->training) {
        memset(e->dq, 0, (size_t)(rows * d_qk) * sizeof(double));
        memset(e->delta, 0, (size_t)rows * sizeof(double));
    }
}

double rows_lse(double shift, double sum, double sink)
{
    return sum > 0 && isfinite(sum) ? shift + log(sum) : sink;
}

JUDGE_CLONES void rows_finish(enum case_dtype dtype, int d, double factor, const float *head,
                              const float *rest, double *reference, float *twin)
{
    for (int i = 0; i < d; i++) {
        if (reference)
            reference[i] = factor * ((double)head[i] + rest[i]);
        twin[i] = (float)(factor * head[i]);
    }
    dtype_round(dtype, twin, d);
}

static double twin_dot(const float *x, const float *y, int count)
{
    double wide[HEAD_DIM_MAX];
    for (int i = 0; i < count; i++)
        wide[i] = y[i];
    return loop_dot(x, wide, count);
}

void rows_delta(const struct cp_case *c, bool reference, const float *d_out, int64_t row,
                const struct expected_queries *e)
{
    int d = c->head_dim_v;
    // A correct kernel keeps delta in fp32.
    e->delta_twin[row] = (float)twin_dot(d_out, e->out_twin + row * d, d);
    if (reference)
        e->delta[row] = loop_dot(d_out, e->out + row * d, d);
}

void rows_sink(const struct cp_case *c, int head, int64_t row, const struct expected_queries *e)
{
    double p = exp(input_sink(c, head) - e->lse[row]), term = -p * e->delta[row];
    double difference = p * (e->delta_twin[row] - e->delta[row]);
    *e->sums.dsink += term;
    *e->sums.dsink_twin_squares += difference * difference;
    *e->sums.dsink_terms += rules_sink_square(p, e->delta[row], rules_product_squares(c));
}
