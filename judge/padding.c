// SPDX-License-Identifier: Apache-2.0
#include "judge/padding.h"

#include <math.h>

#include "judge/dtype.h"

struct padding {
    const struct cp_case *c;
    int rank;
    const struct padded_tensor *tensor;
    struct figures figures;
};

static void element_judge(struct padding *p, struct element where, double got)
{
    struct figures *f = &p->figures;
    if (got == 0)
        return;
    if (f->mismatches++ == 0) {
        f->first_bad = where;
        f->first_bad_got = got;
    }
    f->nonfinite += !isfinite(got);
    if (isfinite(got) && fabs(got) > f->max_abs)
        f->max_abs = fabs(got);
}

static void row_judge(struct padding *p, int32_t sequence, int64_t position, int64_t row)
{
    const struct padded_tensor *t = p->tensor;
    int64_t count = (int64_t)t->heads * t->dim;
    for (int64_t i = 0; i < count; i++) {
        struct element where = {.sequence = sequence,
                                .position = position,
                                .head = (int32_t)(i / t->dim),
                                .dim = (int32_t)(i % t->dim)};
        float got;
        dtype_read(p->c->dtype, t->data, row * count + i, 1, &got);
        element_judge(p, where, got);
    }
    p->figures.elements += count;
}

// The padding of one sequence, whose first local token lies in row `base`.
static void sequence_judge(struct padding *p, int32_t sequence, int64_t base)
{
    const struct cp_case *c = p->c;
    int64_t length = case_length(c, p->tensor->side, sequence), token = 0;
    int chunks = shard_chunks_per_rank(c);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        shard_chunk(case_occupied(c, p->tensor->side, sequence), chunks * c->world_size,
                    shard_chunk_of(c, p->rank, i), &begin, &end);
        for (int64_t position = begin; position < end; position++, token++)
            if (position >= length)
                row_judge(p, sequence, position, base + token * shard_row_step(c));
    }
}

bool padding_judge(const struct cp_case *c, int rank, const struct padded_tensor *tensor,
                   struct figures *figures)
{
    struct padding p = {.c = c,
                        .rank = rank,
                        .tensor = tensor,
                        .figures = {.tensor = tensor->name,
                                    .chunk = CHUNK_PADDING,
                                    .worst_row.position = -1,
                                    .first_bad.position = -1}};
    int64_t base = 0;
    if (case_is_even(c, tensor->side))
        return false;
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        sequence_judge(&p, sequence, base);
        base += c->format == FORMAT_SBHD ? 1 : shard_tokens(c, tensor->side, rank, sequence);
    }
    p.figures.judged = p.figures.elements;
    if (p.figures.mismatches > 0)
        p.figures.broken = RULE_PADDING;
    if (p.figures.elements > 0)
        *figures = p.figures;
    return p.figures.elements > 0;
}
