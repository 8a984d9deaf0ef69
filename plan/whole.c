// SPDX-License-Identifier: Apache-2.0
#include "plan/whole.h"

#include <inttypes.h>
#include <stdio.h>

#include "plan/bias.h"

const char *whole_name(enum whole_tensor tensor)
{
    static const char *const names[] = {
#define WHOLE_NAME(name, text) [WHOLE_##name] = text,
        WHOLE_LIST(WHOLE_NAME)
#undef WHOLE_NAME
    };
    return names[tensor];
}

int whole_element_bytes(enum case_dtype dtype)
{
    return dtype == DTYPE_FP32 ? 4 : 2;
}

// ---- rows ----

int64_t whole_rows(const struct cp_case *c, enum shard_side side)
{
    return whole_row_first(c, side, c->batch);
}

int64_t whole_row_first(const struct cp_case *c, enum shard_side side, int32_t sequence)
{
    int64_t row = 0, seqlen = side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
    if (c->format == FORMAT_BSHD)
        return sequence * seqlen;
    if (c->format == FORMAT_SBHD)
        return sequence < c->batch ? sequence : c->batch * seqlen;
    for (int32_t before = 0; before < sequence; before++)
        row += case_occupied(c, side, before);
    return row;
}

int64_t whole_row_step(const struct cp_case *c)
{
    return c->format == FORMAT_SBHD ? c->batch : 1;
}

// ---- shapes ----

static void shape_add(struct whole_shape *shape, int64_t size)
{
    shape->size[shape->dims++] = size;
}

static void rows_add(const struct cp_case *c, enum shard_side side, struct whole_shape *shape)
{
    int64_t seqlen = side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
    if (c->format == FORMAT_THD) {
        shape_add(shape, whole_rows(c, side));
        return;
    }
    shape_add(shape, c->format == FORMAT_BSHD ? c->batch : seqlen);
    shape_add(shape, c->format == FORMAT_BSHD ? seqlen : c->batch);
}

static void tokens_shape(const struct cp_case *c, enum shard_side side, int heads, int dim,
                         struct whole_shape *shape)
{
    rows_add(c, side, shape);
    shape_add(shape, heads);
    shape_add(shape, dim);
}

static void lse_shape(const struct cp_case *c, struct whole_shape *shape)
{
    shape->dtype = DTYPE_FP32;
    if (c->format != FORMAT_THD)
        shape_add(shape, c->batch);
    shape_add(shape, c->heads);
    shape_add(shape, c->format == FORMAT_THD ? whole_rows(c, SIDE_Q) : c->seqlen_q);
}

static void heads_shape(const struct cp_case *c, struct whole_shape *shape)
{
    shape->dtype = DTYPE_FP32;
    shape_add(shape, c->heads);
}

static void bias_shape_fill(const struct cp_case *c, struct whole_shape *shape)
{
    shape_add(shape, bias_has_batch(c) ? c->batch : 1);
    shape_add(shape, bias_has_heads(c) ? c->heads : 1);
    shape_add(shape, bias_has_queries(c) ? c->seqlen_q : 1);
    shape_add(shape, c->seqlen_kv);
}

static bool exists(const struct cp_case *c, enum whole_tensor tensor)
{
    switch (tensor) {
    case WHOLE_DO:
    case WHOLE_DQ:
    case WHOLE_DK:
    case WHOLE_DV:
        return c->training;
    case WHOLE_BIAS:
        return c->bias != BIAS_NONE;
    case WHOLE_DBIAS:
        return c->bias != BIAS_NONE && c->training;
    case WHOLE_SINK:
        return c->softmax == SOFTMAX_LEARNABLE;
    case WHOLE_DSINK:
        return c->softmax == SOFTMAX_LEARNABLE && c->training;
    case WHOLE_MAX_LOGIT:
        return c->max_logit;
    case WHOLE_Q:
    case WHOLE_K:
    case WHOLE_V:
    case WHOLE_OUT:
    case WHOLE_LSE:
    case WHOLE_TENSORS:
        break;
    }
    return tensor < WHOLE_TENSORS;
}

bool whole_shape(const struct cp_case *c, enum whole_tensor tensor, struct whole_shape *shape)
{
    if (!exists(c, tensor))
        return false;
    *shape = (struct whole_shape){.dtype = c->dtype};
    switch (tensor) {
    case WHOLE_Q:
    case WHOLE_DQ:
        tokens_shape(c, SIDE_Q, c->heads, c->head_dim_qk, shape);
        break;
    case WHOLE_DO:
    case WHOLE_OUT:
        tokens_shape(c, SIDE_Q, c->heads, c->head_dim_v, shape);
        break;
    case WHOLE_K:
    case WHOLE_DK:
        tokens_shape(c, SIDE_KV, c->kv_heads, c->head_dim_qk, shape);
        break;
    case WHOLE_V:
    case WHOLE_DV:
        tokens_shape(c, SIDE_KV, c->kv_heads, c->head_dim_v, shape);
        break;
    case WHOLE_LSE:
        lse_shape(c, shape);
        break;
    case WHOLE_BIAS:
    case WHOLE_DBIAS:
        bias_shape_fill(c, shape);
        break;
    case WHOLE_SINK:
    case WHOLE_DSINK:
    case WHOLE_MAX_LOGIT:
        heads_shape(c, shape);
        break;
    case WHOLE_TENSORS:
        break;
    }
    return true;
}

int64_t whole_bytes(const struct cp_case *c, enum whole_tensor tensor)
{
    struct whole_shape shape;
    if (!whole_shape(c, tensor, &shape))
        return 0;
    int64_t bytes = whole_element_bytes(shape.dtype);
    for (int i = 0; i < shape.dims; i++)
        bytes *= shape.size[i];
    return bytes;
}

const char *whole_shape_text(const struct whole_shape *shape, char text[WHOLE_SHAPE_TEXT_MAX])
{
    int length = snprintf(text, WHOLE_SHAPE_TEXT_MAX, "%s [",
                          case_choice_name(case_dtype_choices, (int)shape->dtype));
    for (int i = 0; i < shape->dims; i++)
        length += snprintf(text + length, (size_t)(WHOLE_SHAPE_TEXT_MAX - length), "%s%" PRId64,
                           i > 0 ? ", " : "", shape->size[i]);
    snprintf(text + length, (size_t)(WHOLE_SHAPE_TEXT_MAX - length), "]");
    return text;
}
