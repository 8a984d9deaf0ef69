// SPDX-License-Identifier: Apache-2.0
// The judged tensors of a verification, and the figures of its report.
#include <math.h>
#include <stdlib.h>

#include "judge/chunk.h"
#include "judge/cuda/verify.h"
#include "judge/cuda/verify_state.h"
#include "plan/bias.h"

struct slot_tensor verify_slot(const struct verify_cuda *x, enum slot slot)
{
    const struct cp_case *c = x->c;
    const struct rank_results *r = &x->v.results;
    int qk = c->head_dim_qk, v = c->head_dim_v, heads = c->heads, kv_heads = c->kv_heads;
    const struct reference_results *e = x->expected, none = {0};
    const struct slot_tensor all[SLOTS] = {
        [SLOT_OUT] = {TENSOR_OUT, SIDE_Q, r->out, c->dtype, heads, v, e[0]},
        [SLOT_LSE] = {TENSOR_LSE, SIDE_Q, r->lse, DTYPE_FP32, heads, 1, none},
        [SLOT_DQ] = {TENSOR_DQ, SIDE_Q, r->dq, c->dtype, heads, qk, e[1]},
        [SLOT_DK] = {TENSOR_DK, SIDE_KV, r->dk, c->dtype, kv_heads, qk, e[1]},
        [SLOT_DV] = {TENSOR_DV, SIDE_KV, r->dv, c->dtype, kv_heads, v, e[0]},
    };
    return all[slot];
}

bool verify_slot_present(const struct verify_cuda *x, enum slot slot)
{
    if (x->v.alone && !verify_slot(x, slot).data)
        return false;
    return slot == SLOT_OUT || slot == SLOT_LSE || x->c->training;
}

struct bias_share verify_bias_share(const struct verify_cuda *x)
{
    struct totals_layout l = totals_layout(x->c, x->v.rank);
    if (x->v.alone)
        return (struct bias_share){.count = l.heads * l.rows * l.columns};
    return bias_share(x->c, x->v.rank);
}

static void figures_append(struct rank_report *report, const struct figures *figures)
{
    report->pass = report->pass && figures->broken == 0;
    report->figures[report->figures_count++] = *figures;
}

static struct figures figures_of(const struct cp_case *c, const struct compare_result *r,
                                 enum report_tensor tensor, int chunk, int64_t elements)
{
    struct figures f = {.tensor = tensor, .chunk = chunk, .elements = elements};
    struct rules rules = rules_of(c, tensor);
    f.worst_row.position = f.first_bad.position = -1;
    rules_finish(&rules, &r->sums, &r->worst, &f);
    if (r->first_bad >= 0) {
        f.first_bad_got = r->first_bad_got;
        f.first_bad_expected = r->first_bad_expected;
    }
    return f;
}

// ---- tensors judged row by row ------------------------------------------------------------------

// Sequence, position and head of row `index` of a chunk, numbered as in struct compare_tensor. The
// dim is 0.
static struct element row_element(const struct verify_cuda *x, enum shard_side side, int chunk,
                                  int heads, int64_t index)
{
    int64_t row = index / heads + (chunk > 0 ? x->chunk_rows[side] : 0);
    struct element where = {.head = (int32_t)(index % heads)};
    for (int64_t i = 0; i < x->extent.tiles[side]; i++) {
        const struct reference_tile *tile = &x->tiles[side][i];
        if (row < tile->row || row >= tile->row + tile->count)
            continue;
        where.sequence = tile->sequence;
        where.position = tile->position + row - tile->row;
    }
    return where;
}

static void slot_append(const struct verify_cuda *x, enum slot slot, int chunk,
                        struct rank_report *report)
{
    struct slot_tensor t = verify_slot(x, slot);
    const struct compare_result *r = &x->results[slot * COMPARE_CHUNKS + chunk];
    int64_t tokens = chunk_tokens(x->v.spans[t.side], x->v.span_count[t.side], chunk);
    if (!verify_slot_present(x, slot) || tokens == 0)
        return;
    struct figures f = figures_of(x->c, r, t.name, chunk, tokens * t.heads * t.dim);
    if (r->worst_index >= 0)
        f.worst_row = row_element(x, t.side, chunk, t.heads, r->worst_index);
    if (r->first_bad >= 0) {
        f.first_bad = row_element(x, t.side, chunk, t.heads, r->first_bad / t.dim);
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

// ---- sums over the queries ----------------------------------------------------------------------

static void dbias_append(const struct verify_cuda *x, struct rank_report *report)
{
    const struct compare_result *r = &x->results[SLOT_DBIAS];
    struct bias_share share = verify_bias_share(x);
    int64_t columns = x->c->seqlen_kv;
    struct figures f = figures_of(x->c, r, TENSOR_DBIAS, 0, share.count);
    if (r->worst_index >= 0)
        f.worst_row = totals_line_element(x->c, x->v.rank, share.first / columns + r->worst_index);
    if (r->first_bad >= 0) {
        f.first_bad = totals_line_element(x->c, x->v.rank, (share.first + r->first_bad) / columns);
        f.first_bad.dim = (int32_t)((share.first + r->first_bad) % columns);
    }
    figures_append(report, &f);
}

// Sets a rank's numbers to neutral values, so that its queries do not count.
static void heads_clear(double *numbers, int heads)
{
    for (int i = 0; i < TOTALS_NUMBERS * heads; i++)
        numbers[i] = i / heads == TOTALS_MAX_LOGIT ? -INFINITY : 0;
}

static void totals_append(const struct verify_cuda *x, struct rank_report *report)
{
    double *heads[WORLD_SIZE_MAX];
    struct figures f;
    for (int rank = 0; rank < x->c->world_size; rank++)
        heads[rank] = x->heads + rank * TOTALS_NUMBERS * x->c->heads;
    for (int rank = 0; rank < x->c->world_size && x->v.own_sums; rank++)
        if (rank != x->v.rank)
            heads_clear(heads[rank], x->c->heads);
    if (x->v.results.max_logit) {
        f = totals_judge_max_logit(x->c, heads, x->max_logit, verify_is_sample(x));
        figures_append(report, &f);
    }
    if (x->v.results.dsink) {
        f = totals_judge_dsink(x->c, heads, x->dsink);
        figures_append(report, &f);
    }
    if (x->v.results.dbias)
        dbias_append(x, report);
}

void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report)
{
    report->pass = true;
    report->figures_count = 0;
    slots_append(x, 0, SLOTS_OF_QUERIES, report);
    totals_append(x, report);
    slots_append(x, SLOTS_OF_QUERIES, SLOTS, report);
}

// ---- for a diagnosis ----------------------------------------------------------------------------

static void statistics_convert(const struct verify_cuda *x, const void *copy, int64_t count,
                               double *lse, double *delta)
{
    const struct reference_stat64 *exact = copy;
    const struct reference_stat *fast = copy;
    for (int64_t i = 0; i < count; i++) {
        lse[i] =
            x->all.stats64 ? exact[i].lse : ((double)fast[i].lse_high + fast[i].lse_low) * M_LN2;
        delta[i] = x->all.stats64 ? exact[i].delta : fast[i].delta;
    }
}

bool verify_cuda_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta)
{
    const struct verify_cuda *x = context;
    const struct reference_sequence *s = &x->sequences[sequence];
    int64_t at = head * x->r.tokens[SIDE_Q] + s->first[SIDE_Q], count = s->length[SIDE_Q];
    _Static_assert(sizeof(struct reference_stat) == sizeof(struct reference_stat64), "one size");
    size_t bytes = (size_t)count * sizeof(struct reference_stat);
    bool judged = !x->v.alone || x->v.results.dk || x->v.results.dv;
    if (!x->c->training || !judged || (!x->all.stats && !x->all.stats64))
        return false;
    const void *from = x->all.stats64 ? (const void *)(x->all.stats64 + at) : x->all.stats + at;
    void *copy = malloc(bytes + 1);
    bool copied = copy && cudaMemcpy(copy, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    if (copied)
        statistics_convert(x, copy, count, lse, delta);
    free(copy);
    return copied;
}
