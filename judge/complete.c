// SPDX-License-Identifier: Apache-2.0
#include "judge/complete.h"

#include <stdlib.h>

#include "judge/tiles.h"
#include "plan/bias.h"

// Parts of a tensor on a rank: its chunks, then its padding.
#define PARTS (CHUNK_PADDING + 1)

// Numbers of all tokens and of judged tokens of one side of a rank, by part.
struct tokens {
    int64_t all[PARTS], judged[PARTS];
};

static void count_all(const struct cp_case *c, enum shard_side side, int rank, struct tokens *t)
{
    int chunks = shard_chunks_per_rank(c);
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        for (int i = 0; i < chunks; i++) {
            int64_t begin, end, length = case_length(c, side, sequence);
            shard_chunk(case_occupied(c, side, sequence), chunks * c->world_size,
                        shard_chunk_of(c, rank, i), &begin, &end);
            int64_t tokens = length <= begin ? 0 : (length < end ? length : end) - begin;
            t->all[i] += tokens;
            t->all[CHUNK_PADDING] += end - begin - tokens;
        }
}

static void count_sample(const struct cp_case *c, enum shard_side side, int rank, double fraction,
                         struct span *spans, struct tile *tiles, int64_t max, struct tokens *t)
{
    int count = shard_spans(c, side, rank, spans);
    int64_t tile_count = tiles_list(c, side, fraction, spans, count, tiles, max);
    for (int chunk = 0; chunk < CHUNK_PADDING; chunk++)
        t->judged[chunk] = tiles_tokens(tiles, tile_count < max ? tile_count : max, spans, chunk);
}

static enum status tokens_of(const struct cp_case *c, enum shard_side side, int rank,
                             double fraction, struct tokens *t, struct error *error)
{
    *t = (struct tokens){0};
    count_all(c, side, rank, t);
    for (int part = 0; part < PARTS; part++)
        t->judged[part] = t->all[part];
    if (fraction >= 1)
        return STATUS_OK;
    int64_t spans_max = shard_spans_max(c);
    int64_t max = shard_rows(c, side, rank) / TILE_TOKENS + 2 * spans_max;
    struct span *spans = malloc((size_t)spans_max * sizeof(*spans));
    struct tile *tiles = malloc((size_t)max * sizeof(*tiles));
    if (spans && tiles)
        count_sample(c, side, rank, fraction, spans, tiles, max, t);
    bool there = spans && tiles;
    free(spans);
    free(tiles);
    return there ? STATUS_OK
                 : error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to check a sample");
}

// The expected numbers of elements of a tensor in one part.
struct extent {
    enum report_tensor tensor;
    int part;
    int64_t elements, judged;
};

// Checks that the report has one set of figures for the part, or none if the part is empty, and
// that its numbers are the expected ones. Adds the number of sets to *found.
static enum status extent_check(const struct rank_report *report, struct extent extent, int *found,
                                struct error *error)
{
    int64_t elements = 0, judged = 0;
    int count = 0;
    for (int i = 0; i < report->figures_count; i++) {
        const struct figures *f = &report->figures[i];
        if (f->tensor != (int32_t)extent.tensor || f->chunk != extent.part)
            continue;
        elements += f->elements;
        judged += extent.part == CHUNK_PADDING ? f->elements : f->judged;
        count++;
    }
    *found += count;
    if (count == (extent.elements > 0) && elements == extent.elements && judged == extent.judged)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL,
                     "the verification of %s, %s %d, has %d figures of %lld elements, %lld judged, "
                     "where rank %d has %lld and %lld are to be judged",
                     report_tensor_name((int)extent.tensor),
                     extent.part == CHUNK_PADDING ? "part" : "chunk", extent.part, count,
                     (long long)elements, (long long)judged, report->rank,
                     (long long)extent.elements, (long long)extent.judged);
}

// Checks a tensor with rows of `width` elements; width 0: the case has no such tensor.
static enum status rows_check(const struct rank_report *report, enum report_tensor tensor,
                              const struct tokens *t, int64_t width, int *found,
                              struct error *error)
{
    enum status status = STATUS_OK;
    for (int part = 0; part < PARTS && status == STATUS_OK; part++) {
        struct extent extent = {tensor, part, t->all[part] * width, t->judged[part] * width};
        if (tensor == TENSOR_LSE && part == CHUNK_PADDING)
            extent.elements = extent.judged = 0; // LSE of padding is not used
        status = extent_check(report, extent, found, error);
    }
    return status;
}

static enum status whole_check(const struct rank_report *report, enum report_tensor tensor,
                               int64_t elements, int *found, struct error *error)
{
    struct extent extent = {tensor, 0, elements, elements};
    // If a rank delivers no part of a tensor that the case has, it reports figures without
    // elements.
    if (elements == 0)
        for (int i = 0; i < report->figures_count; i++)
            *found +=
                report->figures[i].tensor == (int32_t)tensor && report->figures[i].elements == 0;
    return elements == 0 ? STATUS_OK : extent_check(report, extent, found, error);
}

static enum status all_check(const struct cp_case *c, int rank, bool lse, const struct tokens *q,
                             const struct tokens *kv, const struct rank_report *report, int *found,
                             struct error *error)
{
    bool training = c->training;
    const struct {
        enum report_tensor tensor;
        const struct tokens *tokens;
        int64_t width;
    } rows[] = {
        {TENSOR_OUT, q, (int64_t)c->heads * c->head_dim_v},
        {TENSOR_LSE, q, lse ? c->heads : 0},
        {TENSOR_DQ, q, training ? (int64_t)c->heads * c->head_dim_qk : 0},
        {TENSOR_DK, kv, training ? (int64_t)c->kv_heads * c->head_dim_qk : 0},
        {TENSOR_DV, kv, training ? (int64_t)c->kv_heads * c->head_dim_v : 0},
    };
    bool sinks = training && c->softmax == SOFTMAX_LEARNABLE,
         bias = training && c->bias != BIAS_NONE;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && status == STATUS_OK; i++)
        status = rows_check(report, rows[i].tensor, rows[i].tokens, rows[i].width, found, error);
    if (status == STATUS_OK)
        status = whole_check(report, TENSOR_MAX_LOGIT, c->max_logit ? c->heads : 0, found, error);
    if (status == STATUS_OK)
        status = whole_check(report, TENSOR_DSINK, sinks ? c->heads : 0, found, error);
    if (status == STATUS_OK)
        status =
            whole_check(report, TENSOR_DBIAS, bias ? bias_share(c, rank).count : 0, found, error);
    return status;
}

enum status complete_check(const struct cp_case *c, int rank, double work, bool lse,
                           const struct rank_report *report, struct error *error)
{
    struct tokens q, kv;
    int found = 0;
    double fraction = tiles_fraction(c, work);
    enum status status = tokens_of(c, SIDE_Q, rank, fraction, &q, error);
    if (status == STATUS_OK)
        status = tokens_of(c, SIDE_KV, rank, fraction, &kv, error);
    if (status == STATUS_OK)
        status = all_check(c, rank, lse, &q, &kv, report, &found, error);
    if (status == STATUS_OK && found != report->figures_count)
        return error_set(error, STATUS_INTERNAL,
                         "the verification has %d figures where rank %d has %d parts of tensors",
                         report->figures_count, rank, found);
    return status;
}
