// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/reference16.cuh"
#include "judge/cuda/reference16.h"

extern "C" {
#include "judge/rules.h"
}

static void run(const struct reference_cuda *r, const struct reference_rows *rows, attend16 &a,
                pass which)
{
    if (r->c->dtype == DTYPE_BF16)
        reference16_run_bf16(r, rows, a, which);
    else
        reference16_run_fp16(r, rows, a, which);
}

static attend16 attend16_of(const struct reference_cuda *r, const struct reference_rows *rows,
                            enum shard_side side)
{
    const struct cp_case *c = r->c;
    const uint16_t *queries[] = {(uint16_t *)r->narrow[REFERENCE_Q],
                                 (uint16_t *)r->narrow[REFERENCE_DO]};
    const uint16_t *keys[] = {(uint16_t *)r->narrow[REFERENCE_K],
                              (uint16_t *)r->narrow[REFERENCE_V]};
    attend16 a = attend_begin<attend16>(r, rows, side, queries, keys);
    a.scale = (float)case_scale(c);
    a.products = (float)rules_product_squares(c);
    double factor = (a.c.bias.present || c->softcap != 0 ? 1 : case_scale(c)) * M_LOG2E;
    a.factor[0] = (float)factor;
    a.factor[1] = (float)(factor - a.factor[0]);
    return a;
}

void reference16_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     const struct reference_results *out, struct reference_stat *stats, float *max)
{
    attend16 a = attend16_of(r, queries, SIDE_Q);
    a.result = *out;
    a.result_stats = stats;
    a.result_max = max;
    run(r, queries, a, PASS_OUT);
}

void reference16_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    const struct reference_results *dq, float *terms)
{
    attend16 a = attend16_of(r, queries, SIDE_Q);
    a.stats = stats;
    a.dbias = *dbias;
    a.result = *dq;
    a.result_terms = terms;
    run(r, queries, a, PASS_DQ);
}

void reference16_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, const struct reference_results *dk,
                     const struct reference_results *dv, float *terms)
{
    attend16 a = attend16_of(r, keys, SIDE_KV);
    a.stats = stats;
    a.result = *dv;
    run(r, keys, a, PASS_DV);
    a.result = *dk;
    a.result_terms = terms;
    run(r, keys, a, PASS_DK);
}
