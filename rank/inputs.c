// SPDX-License-Identifier: Apache-2.0
#include "rank/inputs.h"

void inputs_fill(const struct cp_case *c, enum input_tensor tensor, const struct span *spans,
                 int count, void *data)
{
    int64_t row_bytes =
        (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor) * case_element_bytes(c);
    int64_t step = shard_row_step(c);
    for (int s = 0; s < count; s++)
        for (int64_t i = 0; i < spans[s].len; i++)
            input_row(c, tensor, spans[s].sequence, spans[s].position + i,
                      (char *)data + (spans[s].row + i * step) * row_bytes);
}
