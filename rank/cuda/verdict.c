// SPDX-License-Identifier: Apache-2.0
// What a verification judges, and the figures that have come of it.
#include "judge/chunk.h"
#include "plan/bias.h"
#include "rank/cuda/verify_state.h"

struct slot_tensor verify_slot(const struct verify_cuda *x, enum slot slot)
{
    const struct cp_case *c = x->c;
    int qk = c->head_dim_qk, v = c->head_dim_v;
    int wide_qk = reference_cuda_padded(qk), wide_v = reference_cuda_padded(v);
    const struct slot_tensor all[SLOTS] = {
        [SLOT_OUT] = {TENSOR_OUT, SIDE_Q, x->v.results.out, c->dtype, c->heads, v, wide_v,
                      x->expected[0]},
        [SLOT_LSE] = {TENSOR_LSE, SIDE_Q, x->v.results.lse, DTYPE_FP32, c->heads, 1, 1,
                      x->statistics[x->v.rank]},
        [SLOT_DQ] = {TENSOR_DQ, SIDE_Q, x->v.results.dq, c->dtype, c->heads, qk, wide_qk,
                     x->expected[1]},
        [SLOT_DK] = {TENSOR_DK, SIDE_KV, x->v.results.dk, c->dtype, c->kv_heads, qk, wide_qk,
                     x->expected[1]},
        [SLOT_DV] = {TENSOR_DV, SIDE_KV, x->v.results.dv, c->dtype, c->kv_heads, v, wide_v,
                     x->expected[0]},
    };
    return all[slot];
}

bool verify_slot_present(const struct cp_case *c, enum slot slot)
{
    return slot == SLOT_OUT || slot == SLOT_LSE || c->training;
}

struct sums_results verify_sums_results(const struct verify_cuda *x)
{
    return (struct sums_results){.max_logit = x->v.results.max_logit ? x->max_logit : NULL,
                                 .dsink = x->v.results.dsink ? x->dsink : NULL,
                                 .spans = x->v.spans[SIDE_Q],
                                 .span_count = x->v.span_count[SIDE_Q]};
}

// ---- finish -------------------------------------------------------------------------------------

static void figures_append(struct rank_report *report, const struct figures *figures)
{
    report->pass = report->pass && figures->broken == 0;
    report->figures[report->figures_count++] = *figures;
}

static struct figures figures_of(const struct compare_result *r, const struct figures_rule *rule,
                                 enum report_tensor tensor, int chunk)
{
    struct figures f = figures_init(rule, tensor, chunk);
    struct figures_sums sums = {.error_squares = r->error_squares,
                                .expected_squares = r->expected_squares,
                                .terms_squares = r->terms_squares,
                                .worst_row = r->worst_row};
    f.elements = f.judged = r->elements;
    f.mismatches = r->mismatches;
    f.nonfinite = r->nonfinite;
    f.max_abs = r->max_abs;
    f.worst_element = r->worst_element;
    figures_finish(&f, rule, &sums);
    if (r->first_bad >= 0) {
        f.first_bad_got = r->first_bad_got;
        f.first_bad_expected = r->first_bad_expected;
    }
    return f;
}

static void slot_append(const struct verify_cuda *x, enum slot slot, int chunk,
                        struct rank_report *report)
{
    struct slot_tensor t = verify_slot(x, slot);
    const struct span *spans = x->v.spans[t.side];
    int count = x->v.span_count[t.side], number = slot * COMPARE_CHUNKS + chunk;
    const struct compare_result *r = &x->results[number];
    if (!verify_slot_present(x->c, slot) || chunk_tokens(spans, count, chunk) == 0)
        return;
    struct figures f = figures_of(r, &x->rules[number], t.name, chunk);
    f.worst_row = chunk_element(spans, count, chunk, t.heads, r->worst_index);
    if (r->first_bad >= 0) {
        f.first_bad = chunk_element(spans, count, chunk, t.heads, r->first_bad / t.dim);
        f.first_bad.dim = (int32_t)(r->first_bad % t.dim);
    }
    figures_append(report, &f);
}

static void slots_append(const struct verify_cuda *x, int first, int behind,
                         struct rank_report *report)
{
    for (int chunk = 0; chunk < shard_chunks_per_rank(x->c); chunk++)
        for (int slot = first; slot < behind; slot++)
            slot_append(x, (enum slot)slot, chunk, report);
    for (int slot = first; slot < behind; slot++) {
        struct figures figures;
        if (x->padding[slot] && padding_cuda_figures(x->padding[slot], &figures))
            figures_append(report, &figures);
    }
}

static void dbias_append(const struct verify_cuda *x, struct rank_report *report)
{
    const struct compare_result *r = &x->results[SLOT_DBIAS];
    struct bias_share share = bias_share(x->c, x->v.rank);
    int64_t columns = x->c->seqlen_kv;
    struct figures f = figures_of(r, &x->rules[SLOT_DBIAS], TENSOR_DBIAS, 0);
    if (r->worst_index >= 0)
        f.worst_row = sums_line_element(x->c, x->v.rank, share.first / columns + r->worst_index);
    if (r->first_bad >= 0) {
        f.first_bad = sums_line_element(x->c, x->v.rank, (share.first + r->first_bad) / columns);
        f.first_bad.dim = (int32_t)((share.first + r->first_bad) % columns);
    }
    figures_append(report, &f);
}

static void sums_append(const struct verify_cuda *x, struct rank_report *report)
{
    double *heads[WORLD_SIZE_MAX];
    struct sums_results results = verify_sums_results(x);
    struct figures figures[SUMS_TENSORS_MAX];
    for (int rank = 0; rank < x->c->world_size; rank++)
        heads[rank] = x->heads + rank * SUMS_NUMBERS * x->c->heads;
    int count = sums_heads_judge(x->c, heads, &results, x->head_rows, figures);
    for (int i = 0; i < count; i++)
        figures_append(report, &figures[i]);
    if (x->v.results.dbias)
        dbias_append(x, report);
}

void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report)
{
    report->pass = true;
    report->figures_count = 0;
    slots_append(x, 0, SLOTS_OF_QUERIES, report);
    sums_append(x, report);
    slots_append(x, SLOTS_OF_QUERIES, SLOTS, report);
}
