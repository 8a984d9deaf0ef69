// SPDX-License-Identifier: Apache-2.0
#include "kernels/inputs.h"

#include <math.h>

#include "kernels/vector.h"

// Standard deviation of the scaled logits of sharp inputs.
#define SHARP_LOGIT_DEVIATION 4

// Elements that are drawn at a time: in the first level cache, and long enough to amortise the
// call.
#define DRAW_COUNT 1024

int input_heads(const struct cp_case *c, enum input_tensor tensor)
{
    return tensor == INPUT_K || tensor == INPUT_V ? c->kv_heads : c->heads;
}

int input_head_dim(const struct cp_case *c, enum input_tensor tensor)
{
    return tensor == INPUT_Q || tensor == INPUT_K ? c->head_dim_qk : c->head_dim_v;
}

// A logit is scale * q.k, and q.k of unit-variance vectors deviates by sqrt(head_dim_qk).
static float sharp_factor(const struct cp_case *c)
{
    return (float)(SHARP_LOGIT_DEVIATION / (case_scale(c) * sqrt(c->head_dim_qk)));
}

struct input_draw input_draw_of(const struct cp_case *c, enum input_tensor tensor)
{
    struct input_draw draw = {
        .seed = c->seed, .tensor = (uint32_t)tensor, .limit = INFINITY, .factor = 1};
    if (c->inputs == INPUTS_TE)
        draw.limit = 1;
    else if (tensor == INPUT_Q)
        draw.factor = sharp_factor(c);
    return draw;
}

static uint64_t element_index(const struct cp_case *c, enum input_tensor tensor, int sequence,
                              int64_t position, int head)
{
    bool key_side = tensor == INPUT_K || tensor == INPUT_V;
    uint64_t length = (uint64_t)(key_side ? c->seqlen_kv : c->seqlen_q);
    uint64_t token = (uint64_t)sequence * length + (uint64_t)position;
    uint64_t row = token * (uint64_t)input_heads(c, tensor) + (uint64_t)head;
    return row * (uint64_t)input_head_dim(c, tensor);
}

void input_token_head(const struct cp_case *c, enum input_tensor tensor, int sequence,
                      int64_t position, int head, float *values)
{
    const struct vector_ops *vector = vector_best();
    struct input_draw draw = input_draw_of(c, tensor);
    uint64_t first = element_index(c, tensor, sequence, position, head);
    int count = input_head_dim(c, tensor);
    float rounded[HEAD_DIM_MAX];
    vector->draw(&draw, first, count, values);
    vector->store(c->dtype, values, rounded, count);
    vector->load(c->dtype, rounded, values, count);
}

void input_row(const struct cp_case *c, enum input_tensor tensor, int sequence, int64_t position,
               void *row)
{
    const struct vector_ops *vector = vector_best();
    struct input_draw draw = input_draw_of(c, tensor);
    uint64_t first = element_index(c, tensor, sequence, position, 0);
    int count = input_heads(c, tensor) * input_head_dim(c, tensor);
    float values[DRAW_COUNT];
    for (int done = 0; done < count; done += DRAW_COUNT) {
        int part = count - done < DRAW_COUNT ? count - done : DRAW_COUNT;
        vector->draw(&draw, first + (uint64_t)done, part, values);
        vector->store(c->dtype, values, (char *)row + (size_t)done * (size_t)dtype_bytes(c->dtype),
                      part);
    }
}
