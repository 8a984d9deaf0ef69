// SPDX-License-Identifier: Apache-2.0
#include "rank/inputs.h"

#include <string.h>

#include "plan/bias.h"

void inputs_fill(const struct cp_case *c, enum input_tensor tensor, int rank,
                 const struct span *spans, int count, void *data)
{
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    int64_t row_bytes =
        (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor) * case_element_bytes(c);
    int64_t step = shard_row_step(c);
    if (!case_is_even(c, side)) // all ones are a NaN in every dtype
        memset(data, 0xff, (size_t)(shard_rows(c, side, rank) * row_bytes));
    for (int s = 0; s < count; s++)
        for (int64_t i = 0; i < spans[s].len; i++)
            input_row(c, tensor, spans[s].sequence, spans[s].position + i,
                      (char *)data + (spans[s].row + i * step) * row_bytes);
}

// Fills the bias rows of one span's queries, for all heads of the rank. `row`: the bias row of the
// span's first query.
static void fill_bias_span(const struct cp_case *c, const struct bias_shape *shape,
                           const struct span *span, int64_t row, char *data)
{
    int64_t row_bytes = shape->columns * case_element_bytes(c), step = bias_row_step(c);
    for (int32_t head = 0; head < shape->heads; head++)
        for (int64_t i = 0; i < (step > 0 ? span->len : 1); i++)
            input_bias_row(c, span->sequence, shape->head_first + head, span->position + i, 0,
                           shape->columns,
                           data + (head * shape->rows + row + i * step) * row_bytes);
}

void inputs_fill_bias(const struct cp_case *c, int rank, struct span *spans, void *data)
{
    struct team team = bias_team(c, rank);
    struct bias_shape shape = bias_shape(c, rank);
    for (int member = 0; member < team.size; member++) {
        int count = shard_spans(c, SIDE_Q, team.first + member, spans);
        for (int i = 0; i < count; i++)
            fill_bias_span(c, &shape, &spans[i], bias_row_of(c, team, member, &spans[i]), data);
    }
}

void inputs_fill_sink(const struct cp_case *c, float *sinks)
{
    for (int head = 0; head < c->heads; head++)
        sinks[head] = input_sink(c, head);
}
