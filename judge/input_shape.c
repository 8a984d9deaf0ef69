// SPDX-License-Identifier: Apache-2.0
#include "judge/input_shape.h"

int input_heads(const struct cp_case *c, enum input_tensor tensor)
{
    return tensor == INPUT_K || tensor == INPUT_V ? c->kv_heads : c->heads;
}

int input_head_dim(const struct cp_case *c, enum input_tensor tensor)
{
    return tensor == INPUT_Q || tensor == INPUT_K ? c->head_dim_qk : c->head_dim_v;
}

uint64_t input_index(const struct cp_case *c, enum input_tensor tensor, int sequence,
                     int64_t position, int head)
{
    bool key_side = tensor == INPUT_K || tensor == INPUT_V;
    uint64_t length = (uint64_t)(key_side ? c->seqlen_kv : c->seqlen_q);
    uint64_t token = (uint64_t)sequence * length + (uint64_t)position;
    uint64_t row = token * (uint64_t)input_heads(c, tensor) + (uint64_t)head;
    return row * (uint64_t)input_head_dim(c, tensor);
}

struct bias_dims input_bias_dims(const struct cp_case *c)
{
    static const struct {
        bool batch, heads, rows;
    } full[] = {
        [BIAS_111S] = {false, false, false}, [BIAS_11SS] = {false, false, true},
        [BIAS_1H1S] = {false, true, false},  [BIAS_1HSS] = {false, true, true},
        [BIAS_B11S] = {true, false, false},  [BIAS_B1SS] = {true, false, true},
        [BIAS_BH1S] = {true, true, false},   [BIAS_BHSS] = {true, true, true},
    };
    return (struct bias_dims){.batch = full[c->bias].batch ? c->batch : 1,
                              .heads = full[c->bias].heads ? c->heads : 1,
                              .rows = full[c->bias].rows ? c->seqlen_q : 1};
}

uint64_t input_bias_index(const struct cp_case *c, int sequence, int head, int64_t position,
                          int64_t key)
{
    struct bias_dims dims = input_bias_dims(c);
    uint64_t index = dims.batch > 1 ? (uint64_t)sequence : 0;
    index = index * (uint64_t)dims.heads + (dims.heads > 1 ? (uint64_t)head : 0);
    index = index * (uint64_t)dims.rows + (dims.rows > 1 ? (uint64_t)position : 0);
    return index * (uint64_t)c->seqlen_kv + (uint64_t)key;
}
