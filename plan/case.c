// SPDX-License-Identifier: Apache-2.0
#include "plan/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/lengths.h"
#include "plan/slice.h"

#define A2A_SIZE_DEFAULT 2

void case_init(struct cp_case *c)
{
    memset(c, 0, sizeof *c); // padding too: a case is copied between processes
    c->world_size = 2;
    c->comm = COMM_P2P;
    c->a2a_size = A2A_SIZE_DEFAULT;
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
    c->verify = true;
    c->inputs = INPUTS_SHARP;
    c->seed = 1234;
}

static enum status check_heads(const struct cp_case *c, struct error *error)
{
    if (c->heads % c->kv_heads == 0)
        return STATUS_OK;
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "heads is %d and kv_heads is %d; accepted is a heads that is a multiple of kv_heads",
        c->heads, c->kv_heads);
}

static enum status check_a2a_size(const struct cp_case *c, struct error *error)
{
    if (c->comm != COMM_A2A_P2P && c->a2a_size != A2A_SIZE_DEFAULT)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a2a_size is %d with comm %s; accepted is %d there, or comm a2a+p2p",
                         c->a2a_size, case_choice_name(case_comm_choices, c->comm),
                         A2A_SIZE_DEFAULT);
    if (c->comm == COMM_A2A_P2P && c->world_size % c->a2a_size != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a2a_size is %d and world_size is %d; accepted is a divisor of world_size",
                         c->a2a_size, c->world_size);
    return STATUS_OK;
}

// A causal mask bounds the right side itself; a window that contradicts it is not silently
// narrowed.
static enum status check_window(const struct cp_case *c, struct error *error)
{
    if (c->mask == MASK_NONE || c->window_right <= 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "window_right is %lld with mask %s; accepted is -1 or 0 there, or mask none",
                     (long long)c->window_right, case_choice_name(case_mask_choices, c->mask));
}

// Beyond these bounds fp32 logits are zero or infinite for any input.
static enum status check_scale(const struct cp_case *c, struct error *error)
{
    if (c->scale == 0 || (c->scale >= 1e-6 && c->scale <= 1e6))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "scale is %g; accepted is 0 (meaning 1/sqrt(head_dim_qk)) or 1e-6 to 1e6",
                     c->scale);
}

// Below, no logit is left; above, none is touched.
static enum status check_softcap(const struct cp_case *c, struct error *error)
{
    if (c->softcap == 0 || (c->softcap >= 1e-3 && c->softcap <= 1e6))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "softcap is %g; accepted is 0 (none) or 1e-3 to 1e6", c->softcap);
}

enum status case_check(const struct cp_case *c, struct error *error)
{
    enum status status = case_check_fields(c, error);
    if (status == STATUS_OK)
        status = check_heads(c, error);
    if (status == STATUS_OK)
        status = check_a2a_size(c, error);
    if (status == STATUS_OK)
        status = check_window(c, error);
    if (status == STATUS_OK)
        status = check_scale(c, error);
    if (status == STATUS_OK)
        status = check_softcap(c, error);
    if (status == STATUS_OK)
        status = lengths_check(c, error);
    int64_t bytes;
    if (status == STATUS_OK)
        status = case_memory(c, &bytes, error);
    return status;
}

struct case_band case_band(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = {.left = SLICE_UNBOUNDED, .right = SLICE_UNBOUNDED};
    if (c->window_left != WINDOW_UNBOUNDED)
        band.left = c->window_left;
    if (c->window_right != WINDOW_UNBOUNDED)
        band.right = c->window_right;
    if (c->mask != MASK_NONE)
        band.right = 0;
    if (c->mask == MASK_CAUSAL_BOTTOM_RIGHT)
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

static int64_t sequence_pairs(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = case_band(c, sequence);
    struct slice whole = {.q_len = case_length(c, SIDE_Q, sequence),
                          .kv_len = case_length(c, SIDE_KV, sequence),
                          .offset = band.shift,
                          .left = band.left,
                          .right = band.right};
    return slice_pairs(&whole);
}

double case_flops_forward(const struct cp_case *c)
{
    double pairs = 0;
    for (int32_t i = 0; i < c->batch; i++)
        pairs += (double)sequence_pairs(c, i);
    return 2 * pairs * c->heads * (c->head_dim_qk + c->head_dim_v);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3); // FNV-1a
    } while (*text++);
    return hash;
}

// Every length by its number, whatever list or default it comes from.
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

uint64_t case_hash(const struct cp_case *c)
{
    struct cp_case same = *c;
    same.model[0] = '\0';
    same.scale = case_scale(c);
    same.pad_multiple = 1;
    if (same.mask != MASK_NONE)
        same.window_right = 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char text[MODEL_NAME_MAX];
        if (field->kind == FIELD_LIST)
            continue;
        case_get(&same, field, text, sizeof text);
        hash = hash_text(hash, text);
    }
    return hash_lengths(c, SIDE_KV, hash_lengths(c, SIDE_Q, hash));
}
