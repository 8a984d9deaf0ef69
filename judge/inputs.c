// SPDX-License-Identifier: Apache-2.0
#include "judge/inputs.h"

#include <math.h>
#include <string.h>

#include "judge/draw.h"
#include "judge/dtype.h"
#include "judge/source.h"
#include "plan/weight.h"

// Standard deviation of sharp sinks, so that some have a large weight and some a small one.
#define SHARP_SINK_DEVIATION 2

// Number of elements drawn at a time: fits in the first-level cache and amortizes the call.
#define DRAW_COUNT 1024

// The constant of the queries, in units of the deviation of their other elements: as large as the
// largest of these, so that it needs no larger range of a 16-bit number.
#define SHARP_CONSTANT 5

// A logit is scale * q.k, and q.k of unit-variance vectors deviates by the root of their length.
static double sharp_factor(const struct cp_case *c, int dims)
{
    return CASE_SHARP_DEVIATION / (case_scale(c) * sqrt(dims));
}

// Q and K of sharp inputs. If logits are lowered, dimension 0 is used only for that.
static void draw_sharp(const struct cp_case *c, enum input_tensor tensor, struct input_draw *draw)
{
    int shift = weight_shift(c);
    double factor = sharp_factor(c, c->head_dim_qk - (shift > 0));
    if (tensor == INPUT_Q)
        draw->factor = (float)factor;
    if (shift == 0)
        return;
    double query = SHARP_CONSTANT * factor, key = -shift / (case_scale(c) * query);
    draw->period = (uint32_t)c->head_dim_qk;
    draw->constant = (float)(tensor == INPUT_Q ? query : key);
}

struct input_draw input_draw_of(const struct cp_case *c, enum input_tensor tensor)
{
    struct input_draw draw = {
        .seed = c->seed, .tensor = (uint32_t)tensor, .limit = INFINITY, .factor = 1};
    if (tensor == INPUT_BIAS)
        return draw;
    if (tensor == INPUT_SINK)
        draw.factor = c->inputs == INPUTS_TE ? 0 : SHARP_SINK_DEVIATION;
    else if (c->inputs == INPUTS_TE)
        draw.limit = 1;
    else if (tensor == INPUT_Q || tensor == INPUT_K)
        draw_sharp(c, tensor, &draw);
    return draw;
}

// Standard deviation of a unit normal clamped to [-1, 1].
#define CLAMPED_RMS 0.72

double input_rms(const struct cp_case *c, enum input_tensor tensor)
{
    double given = source_rms(c, tensor), drawn = input_draw_of(c, tensor).factor;
    if (c->inputs == INPUTS_TE)
        drawn *= CLAMPED_RMS;
    return given >= 0 ? given : drawn;
}

// Writes given elements as fp32, and zeros outside of the given tensor. False: the elements are
// drawn.
static bool given_read(const struct cp_case *c, const void *data, bool outside, int64_t count,
                       float *values)
{
    if (data)
        dtype_read(c->dtype, data, 0, count, values);
    else if (outside)
        memset(values, 0, (size_t)count * sizeof(*values));
    return data || outside;
}

// Like given_read(), but copies the elements in the case's dtype.
static bool given_copy(const struct cp_case *c, const void *data, bool outside, int64_t count,
                       void *row)
{
    if (data)
        memcpy(row, data, (size_t)(count * case_element_bytes(c)));
    else if (outside)
        memset(row, 0, (size_t)(count * case_element_bytes(c)));
    return data || outside;
}

void input_token_head(const struct cp_case *c, enum input_tensor tensor, int sequence,
                      int64_t position, int head, float *values)
{
    struct input_draw draw = input_draw_of(c, tensor);
    uint64_t first = input_index(c, tensor, sequence, position, head);
    int count = input_head_dim(c, tensor);
    bool outside = false;
    const void *given = source_token(c, tensor, sequence, position, head, 1, &outside);
    if (given_read(c, given, outside, count, values))
        return;
    draw_best()->draw(&draw, first, count, values);
    dtype_round(c->dtype, values, count);
}

// Draws `count` elements into memory of the case's dtype.
static void draw_rounded(const struct cp_case *c, enum input_tensor tensor, uint64_t first,
                         int64_t count, void *data)
{
    const struct draw_ops *ops = draw_best();
    struct input_draw draw = input_draw_of(c, tensor);
    float values[DRAW_COUNT];
    for (int64_t done = 0; done < count; done += DRAW_COUNT) {
        int part = count - done < DRAW_COUNT ? (int)(count - done) : DRAW_COUNT;
        ops->draw(&draw, first + (uint64_t)done, part, values);
        dtype_write(c->dtype, values, part, (char *)data + done * case_element_bytes(c));
    }
}

void input_row(const struct cp_case *c, enum input_tensor tensor, int sequence, int64_t position,
               void *row)
{
    int heads = input_heads(c, tensor), count = heads * input_head_dim(c, tensor);
    bool outside = false;
    const void *given = source_token(c, tensor, sequence, position, 0, heads, &outside);
    if (!given_copy(c, given, outside, count, row))
        draw_rounded(c, tensor, input_index(c, tensor, sequence, position, 0), count, row);
}

// ---- bias and sink ----

void input_bias(const struct cp_case *c, int sequence, int head, int64_t position, int64_t first,
                int64_t count, float *values)
{
    struct input_draw draw = input_draw_of(c, INPUT_BIAS);
    uint64_t index = input_bias_index(c, sequence, head, position, first);
    bool outside = false;
    const void *given = source_bias(c, sequence, head, position, first, count, &outside);
    if (given_read(c, given, outside, count, values))
        return;
    draw_best()->draw(&draw, index, count, values);
    dtype_round(c->dtype, values, count);
}

void input_bias_row(const struct cp_case *c, int sequence, int head, int64_t position,
                    int64_t first, int64_t count, void *row)
{
    bool outside = false;
    const void *given = source_bias(c, sequence, head, position, first, count, &outside);
    if (!given_copy(c, given, outside, count, row))
        draw_rounded(c, INPUT_BIAS, input_bias_index(c, sequence, head, position, first), count,
                     row);
}

float input_sink(const struct cp_case *c, int head)
{
    if (c->softmax == SOFTMAX_VANILLA)
        return -INFINITY;
    if (c->softmax == SOFTMAX_OFF_BY_ONE)
        return 0;
    const float *given = source_sink(c, head);
    if (given)
        return *given;
    struct input_draw draw = input_draw_of(c, INPUT_SINK);
    float value;
    draw_best()->draw(&draw, (uint64_t)head, 1, &value);
    return c->inputs == INPUTS_TE ? value : value + (float)weight_sink(c);
}
