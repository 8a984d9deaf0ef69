// SPDX-License-Identifier: Apache-2.0
#include "plan/tensors.h"

int64_t pair_bytes(const struct cp_case *c, int64_t rows, int kv_heads, int element)
{
    return rows * kv_heads * (c->head_dim_qk + c->head_dim_v) * element;
}

struct pair pair_of(const struct cp_case *c, int32_t buffer, int64_t rows, int kv_heads,
                    int element)
{
    int64_t both = pair_bytes(c, rows, kv_heads, element);
    int64_t k = rows * kv_heads * c->head_dim_qk * element;
    return (struct pair){.k = {.buffer = buffer, .bytes = k},
                         .v = {.buffer = buffer, .offset = k, .bytes = both - k},
                         .both = {.buffer = buffer, .bytes = both}};
}

int32_t tensor_buffer(struct builder *b, const char *name, const char *suffix,
                      enum buffer_role role, int64_t bytes)
{
    char text[sizeof((struct plan_buffer *)NULL)->name];
    snprintf(text, sizeof text, "%s%s", name, suffix);
    return builder_buffer(b, text, role, bytes);
}

struct region tensor_whole(struct builder *b, const char *name, const char *suffix,
                           enum buffer_role role, int64_t bytes)
{
    return (struct region){.buffer = tensor_buffer(b, name, suffix, role, bytes), .bytes = bytes};
}

static struct pair key_tensor(const struct tensors *t, struct builder *b, const char *name,
                              enum buffer_role role)
{
    const struct cp_case *c = builder_case(b);
    int element = case_element_bytes(c);
    int64_t bytes = pair_bytes(c, t->kv_rows, c->kv_heads, element);
    int32_t buffer = tensor_buffer(b, name, "", role, bytes);
    return pair_of(c, buffer, t->kv_rows, c->kv_heads, element);
}

void tensors_init(struct tensors *t, struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    int rank = builder_rank(b), element = case_element_bytes(c);
    *t = (struct tensors){.q_rows = shard_rows(c, SIDE_Q, rank),
                          .kv_rows = shard_rows(c, SIDE_KV, rank)};
    int64_t q = t->q_rows * c->heads;
    t->q = tensor_whole(b, "q", "", BUFFER_INPUT_Q, q * c->head_dim_qk * element);
    t->kv = key_tensor(t, b, "kv", BUFFER_INPUT_KV);
    t->out = tensor_whole(b, "out", "", BUFFER_OUT, q * c->head_dim_v * element);
    t->lse = tensor_whole(b, "lse", "", BUFFER_LSE, q * 4);
    if (!c->training)
        return;
    t->d_out = tensor_whole(b, "dout", "", BUFFER_INPUT_DO, q * c->head_dim_v * element);
    t->dq = tensor_whole(b, "dq", "", BUFFER_DQ, q * c->head_dim_qk * element);
    t->dkv = key_tensor(t, b, "dkv", BUFFER_DKV);
}
