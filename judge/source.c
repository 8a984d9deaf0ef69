// SPDX-License-Identifier: Apache-2.0
#include "judge/source.h"

#include <math.h>
#include <stdlib.h>

#include "judge/dtype.h"
#include "plan/bias.h"

// The inputs have the same order as in plan/whole.h.
_Static_assert(INPUT_Q - 1 == WHOLE_Q && INPUT_K - 1 == WHOLE_K && INPUT_V - 1 == WHOLE_V &&
                   INPUT_DO - 1 == WHOLE_DO && INPUT_BIAS - 1 == WHOLE_BIAS &&
                   INPUT_SINK - 1 == WHOLE_SINK,
               "inputs are in the order of whole tensors");

// Number of elements converted at a time.
#define PART 1024

static const char *given(const struct input_source *s, enum input_tensor tensor)
{
    return s ? s->tensors[(int)tensor - 1] : NULL;
}

// ---- life ----

static double tensor_rms(const struct cp_case *c, enum whole_tensor tensor, const void *data)
{
    int64_t count = whole_bytes(c, tensor) / case_element_bytes(c);
    double squares = 0;
    float values[PART];
    for (int64_t first = 0; first < count; first += PART) {
        int64_t part = count - first < PART ? count - first : PART;
        dtype_read(c->dtype, data, first, part, values);
        for (int64_t i = 0; i < part; i++)
            squares += isfinite(values[i]) ? (double)values[i] * (double)values[i] : 0;
    }
    return sqrt(squares / (double)(count > 0 ? count : 1));
}

enum status source_init(struct input_source *s, const struct cp_case *c,
                        const void *const tensors[WHOLE_INPUTS], struct error *error)
{
    *s = (struct input_source){.c = c};
    for (int i = 0; i < WHOLE_INPUTS; i++)
        s->tensors[i] = tensors[i];
    for (int side = 0; side < 2; side++) {
        s->first[side] = calloc((size_t)c->batch, sizeof(*s->first[side]));
        if (!s->first[side]) {
            source_fini(s);
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d sequences",
                             c->batch);
        }
        int64_t row = 0;
        for (int32_t sequence = 0; sequence < c->batch; sequence++) {
            bool packed = c->format == FORMAT_THD;
            s->first[side][sequence] =
                packed ? row : whole_row_first(c, (enum shard_side)side, sequence);
            row += case_occupied(c, (enum shard_side)side, sequence);
        }
    }
    for (int i = WHOLE_Q; i <= WHOLE_DO; i++)
        if (s->tensors[i])
            s->rms[i] = tensor_rms(c, (enum whole_tensor)i, s->tensors[i]);
    return STATUS_OK;
}

void source_fini(struct input_source *s)
{
    free(s->first[0]);
    free(s->first[1]);
    *s = (struct input_source){0};
}

// ---- elements ----

const void *source_token(const struct cp_case *c, enum input_tensor tensor, int32_t sequence,
                         int64_t position, int head, int count, bool *outside)
{
    const struct input_source *s = c->source;
    const char *data = given(s, tensor);
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    if (!data)
        return NULL;
    *outside = sequence < 0 || sequence >= s->c->batch || position < 0 ||
               position >= case_occupied(s->c, side, sequence) || head < 0 ||
               head + count > input_heads(s->c, tensor) ||
               input_head_dim(c, tensor) != input_head_dim(s->c, tensor);
    if (*outside)
        return NULL;
    int64_t row = s->first[side][sequence] + position * whole_row_step(s->c);
    int64_t element = (row * input_heads(s->c, tensor) + head) * input_head_dim(s->c, tensor);
    return data + element * case_element_bytes(s->c);
}

const void *source_bias(const struct cp_case *c, int32_t sequence, int head, int64_t position,
                        int64_t first, int64_t count, bool *outside)
{
    const struct input_source *s = c->source;
    const char *data = given(s, INPUT_BIAS);
    if (!data)
        return NULL;
    *outside = sequence < 0 || sequence >= s->c->batch || head < 0 || head >= s->c->heads ||
               position < 0 || (bias_has_queries(s->c) && position >= s->c->seqlen_q) ||
               first < 0 || first + count > s->c->seqlen_kv;
    if (*outside)
        return NULL;
    return data + (int64_t)input_bias_index(s->c, sequence, head, position, first) *
                      case_element_bytes(s->c);
}

const float *source_sink(const struct cp_case *c, int head)
{
    const struct input_source *s = c->source;
    const float *data = (const float *)(const void *)given(s, INPUT_SINK);
    return data && head >= 0 && head < s->c->heads ? data + head : NULL;
}

double source_rms(const struct cp_case *c, enum input_tensor tensor)
{
    return given(c->source, tensor) ? c->source->rms[(int)tensor - 1] : -1;
}
