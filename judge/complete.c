// SPDX-License-Identifier: Apache-2.0
#include "judge/complete.h"

#include "plan/bias.h"

// Tokens and padding of a side on a rank.
struct rows {
    int64_t tokens, padding;
};

static struct rows rows_of(const struct cp_case *c, enum shard_side side, int rank)
{
    struct rows rows = {0, 0};
    int chunks = shard_chunks_per_rank(c);
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        for (int i = 0; i < chunks; i++) {
            int64_t begin, end, length = case_length(c, side, sequence);
            shard_chunk(case_occupied(c, side, sequence), chunks * c->world_size,
                        shard_chunk_of(c, rank, i), &begin, &end);
            int64_t tokens = length <= begin ? 0 : (length < end ? length : end) - begin;
            rows.tokens += tokens;
            rows.padding += end - begin - tokens;
        }
    return rows;
}

// What there is of a tensor, beside padding and as padding.
struct extent {
    enum report_tensor tensor;
    int64_t elements, padding;
};

static struct extent extent_of(enum report_tensor tensor, struct rows rows, int64_t width)
{
    return (struct extent){tensor, rows.tokens * width, rows.padding * width};
}

static enum status extent_check(const struct rank_report *report, struct extent extent,
                                struct error *error)
{
    int64_t elements = 0, padding = 0;
    for (int i = 0; i < report->figures_count; i++) {
        const struct figures *f = &report->figures[i];
        if (f->tensor == (int32_t)extent.tensor)
            *(f->chunk == CHUNK_PADDING ? &padding : &elements) += f->elements;
    }
    if (elements == extent.elements && padding == extent.padding)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL,
                     "the verification of %s has looked at %lld elements and %lld of padding, "
                     "where rank %d has %lld and %lld",
                     report_tensor_name((int)extent.tensor), (long long)elements,
                     (long long)padding, report->rank, (long long)extent.elements,
                     (long long)extent.padding);
}

enum status complete_check(const struct cp_case *c, int rank, const struct rank_report *report,
                           struct error *error)
{
    struct rows q = rows_of(c, SIDE_Q, rank), kv = rows_of(c, SIDE_KV, rank), none = {0, 0};
    bool sinks = c->training && c->softmax == SOFTMAX_LEARNABLE;
    bool bias = c->training && c->bias != BIAS_NONE;
    struct rows q_back = c->training ? q : none, kv_back = c->training ? kv : none;
    struct extent lse = extent_of(TENSOR_LSE, q, c->heads);
    lse.padding = 0; // nobody reads it
    const struct extent extents[] = {
        extent_of(TENSOR_OUT, q, (int64_t)c->heads * c->head_dim_v),
        lse,
        extent_of(TENSOR_DQ, q_back, (int64_t)c->heads * c->head_dim_qk),
        extent_of(TENSOR_DK, kv_back, (int64_t)c->kv_heads * c->head_dim_qk),
        extent_of(TENSOR_DV, kv_back, (int64_t)c->kv_heads * c->head_dim_v),
        {TENSOR_MAX_LOGIT, c->max_logit ? c->heads : 0, 0},
        {TENSOR_DSINK, sinks ? c->heads : 0, 0},
        {TENSOR_DBIAS, bias ? bias_share(c, rank).count : 0, 0},
    };
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof(extents) / sizeof(*extents) && status == STATUS_OK; i++)
        status = extent_check(report, extents[i], error);
    return status;
}
