// SPDX-License-Identifier: Apache-2.0
#include "plan/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/slice.h"

void case_init(struct cp_case *c)
{
    memset(c, 0, sizeof *c); // padding too: a case is copied between processes
    c->world_size = 2;
    c->comm = COMM_P2P;
    c->a2a_size = CASE_A2A_SIZE_DEFAULT;
    c->sharding = SHARDING_ZIGZAG;
    c->dtype = DTYPE_BF16;
    c->format = FORMAT_BSHD;
    c->batch = 2;
    c->heads = 8;
    c->kv_heads = 8;
    c->head_dim_qk = 128;
    c->head_dim_v = 128;
    c->seqlen_q = 512;
    c->seqlen_kv = 512;
    c->mask = MASK_CAUSAL;
    c->pad_multiple = 1;
    c->window_left = WINDOW_UNBOUNDED;
    c->window_right = WINDOW_UNBOUNDED;
    c->softmax = SOFTMAX_VANILLA;
    c->bias = BIAS_NONE;
    c->training = true;
    c->deterministic = true;
    c->verify = VERIFY_AUTO;
    c->inputs = INPUTS_SHARP;
    c->seed = 1234;
}

bool case_is_causal(const struct cp_case *c)
{
    return c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
}

bool case_is_bottom_right(const struct cp_case *c)
{
    return c->mask == MASK_NONE_BOTTOM_RIGHT || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
}

bool case_has_window(const struct cp_case *c)
{
    return c->window_left != WINDOW_UNBOUNDED ||
           (!case_is_causal(c) && c->window_right != WINDOW_UNBOUNDED);
}

struct case_band case_band(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = {.left = SLICE_UNBOUNDED, .right = SLICE_UNBOUNDED};
    if (c->window_left != WINDOW_UNBOUNDED)
        band.left = c->window_left;
    if (c->window_right != WINDOW_UNBOUNDED)
        band.right = c->window_right;
    if (case_is_causal(c))
        band.right = 0;
    if (case_is_bottom_right(c))
        band.shift = case_length(c, SIDE_Q, sequence) - case_length(c, SIDE_KV, sequence);
    return band;
}

double case_scale(const struct cp_case *c)
{
    return c->scale != 0 ? c->scale : 1 / sqrt(c->head_dim_qk);
}

int case_element_bytes(const struct cp_case *c)
{
    return c->dtype == DTYPE_FP32 ? 4 : 2;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3); // FNV-1a
    } while (*text++);
    return hash;
}

// Hashes the length of every sequence, from a list or the default. Adds nothing for an even side.
static uint64_t hash_lengths(const struct cp_case *c, enum shard_side side, uint64_t hash)
{
    int32_t uneven = case_is_even(c, side) ? 0 : c->batch;
    for (int32_t i = 0; i < uneven; i++) {
        char text[64];
        snprintf(text, sizeof text, "%d:%lld/%lld", (int)side, (long long)case_length(c, side, i),
                 (long long)case_occupied(c, side, i));
        hash = hash_text(hash, text);
    }
    return hash;
}

static bool is_of_provider(const struct case_field *field)
{
    return field->offset == offsetof(struct cp_case, provider) ||
           field->offset == offsetof(struct cp_case, provider_fallback);
}

// True for an optional field that is not set. The hash leaves it out, so that a new field does not
// change the hash of cases without it.
static bool is_unset_option(const struct case_field *field, const struct cp_case *c)
{
    switch (field->offset) {
    case offsetof(struct cp_case, graph):
        return !c->graph;
    case offsetof(struct cp_case, operation_times):
        return !c->operation_times;
    case offsetof(struct cp_case, lse_tolerance):
        return c->lse_tolerance == 0;
    case offsetof(struct cp_case, nodes):
        return !c->nodes;
    case offsetof(struct cp_case, ranks_per_node):
        return !c->ranks_per_node;
    case offsetof(struct cp_case, implementation):
        return !c->implementation[0];
    default:
        return !c->provider[0] && is_of_provider(field);
    }
}

int32_t case_ranks_per_node(const struct cp_case *c)
{
    int32_t ranks = c->nodes > 0 ? c->world_size / c->nodes : c->ranks_per_node;
    return ranks > 0 ? ranks : c->world_size;
}

int32_t case_node(const struct cp_case *c, int32_t rank)
{
    return rank / case_ranks_per_node(c);
}

uint64_t case_hash(const struct cp_case *c)
{
    struct cp_case same = *c;
    same.model[0] = '\0';
    same.scale = case_scale(c);
    same.pad_multiple = 1;
    if (case_is_causal(c))
        same.window_right = 0;
    else if (!case_has_window(c))
        same.mask = MASK_NONE;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char text[MODEL_NAME_MAX];
        if (field->kind == FIELD_LIST || is_unset_option(field, c))
            continue;
        case_get(&same, field, text, sizeof text);
        hash = hash_text(hash, text);
    }
    return hash_lengths(c, SIDE_KV, hash_lengths(c, SIDE_Q, hash));
}
