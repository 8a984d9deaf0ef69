// SPDX-License-Identifier: Apache-2.0
#include "tests/support/generate.h"

#include <stdio.h>

#include "tests/support/splitmix.h"

uint64_t generate_next(uint64_t *state)
{
    return splitmix_next(state);
}

int64_t generate_below(uint64_t *state, int64_t count)
{
    return (int64_t)(generate_next(state) % (uint64_t)count);
}

// True with a chance of 1 in `count`.
static bool one_in(uint64_t *state, int64_t count)
{
    return generate_below(state, count) == 0;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

// Mostly uneven lengths: near the number of ranks and of chunks, where some chunks are empty.
static int64_t draw_length(uint64_t *state, int world_size, int64_t seqlen_max)
{
    const int64_t edges[] = {0,
                             1,
                             world_size - 1,
                             world_size,
                             world_size + 1,
                             2 * world_size - 1,
                             2 * world_size,
                             2 * world_size + 1,
                             seqlen_max - 1,
                             seqlen_max};
    int64_t length = generate_below(state, seqlen_max + 1);
    if (one_in(state, 3))
        length = edges[generate_below(state, sizeof edges / sizeof edges[0])];
    else if (one_in(state, 3))
        length -= length % (2 * world_size);
    return clamp(length, 0, seqlen_max);
}

static int64_t draw_window(uint64_t *state, int64_t seqlen_max)
{
    const int64_t edges[] = {0, 1, 2, seqlen_max};
    if (one_in(state, 2))
        return WINDOW_UNBOUNDED;
    if (one_in(state, 3))
        return clamp(edges[generate_below(state, 4)], 0, SEQLEN_MAX);
    return generate_below(state, seqlen_max + 1);
}

static int32_t draw_head_dim(uint64_t *state)
{
    static const int32_t usual[] = {1, 7, 16, 32, 40, 64, 96, 128, 192, HEAD_DIM_MAX};
    if (one_in(state, 4))
        return 1 + (int32_t)generate_below(state, HEAD_DIM_MAX);
    return usual[generate_below(state, sizeof usual / sizeof usual[0])];
}

static void draw_shape(uint64_t *state, int64_t seqlen_max, struct cp_case *c)
{
    c->batch = 1 + (int32_t)generate_below(state, 3);
    c->kv_heads = 1 + (int32_t)generate_below(state, 4);
    c->heads = c->kv_heads * (1 + (int32_t)generate_below(state, 4));
    c->head_dim_qk = draw_head_dim(state);
    c->head_dim_v = one_in(state, 3) ? draw_head_dim(state) : c->head_dim_qk;
    c->seqlen_q = draw_length(state, c->world_size, seqlen_max);
    c->seqlen_kv = one_in(state, 3) ? draw_length(state, c->world_size, seqlen_max) : c->seqlen_q;
}

// ---- lengths of each sequence ----

// A random length for each sequence, in patterns that are known to cause errors.
static void draw_list(uint64_t *state, const struct cp_case *c, int64_t seqlen_max, int32_t *list)
{
    int64_t kind = generate_below(state, 4), longest = generate_below(state, c->batch);
    int64_t same = draw_length(state, c->world_size, seqlen_max);
    for (int32_t i = 0; i < c->batch; i++) {
        if (kind == 0) // one long one among short ones
            list[i] = (int32_t)(i == longest ? seqlen_max : generate_below(state, 3));
        else if (kind == 1) // nothing comes after the longest
            list[i] = (int32_t)(i <= longest ? draw_length(state, c->world_size, seqlen_max) : 0);
        else
            list[i] = (int32_t)(kind == 2 ? same : draw_length(state, c->world_size, seqlen_max));
        list[i] = (int32_t)clamp(list[i], 0, seqlen_max);
    }
}

static int64_t longest_of(const int32_t *list, int32_t count)
{
    int64_t longest = 0;
    for (int32_t i = 0; i < count; i++)
        longest = list[i] > longest ? list[i] : longest;
    return longest;
}

static void draw_lengths(uint64_t *state, int64_t seqlen_max, struct cp_case *c)
{
    int32_t list[GENERATE_BATCH_MAX] = {0};
    c->batch = 1 + (int32_t)generate_below(state, GENERATE_BATCH_MAX);
    draw_list(state, c, seqlen_max, list);
    case_list_set(c, LIST_LENGTHS_Q, list, c->batch);
    c->seqlen_q = one_in(state, 2) ? seqlen_max : longest_of(list, c->batch);
    c->seqlen_kv = c->seqlen_q;
    if (one_in(state, 4)) { // the keys have a length of their own, without lists
        c->seqlen_kv = draw_length(state, c->world_size, seqlen_max);
    } else if (one_in(state, 3)) {
        draw_list(state, c, seqlen_max, list);
        case_list_set(c, LIST_LENGTHS_KV, list, c->batch);
        c->seqlen_kv = one_in(state, 2) ? seqlen_max : longest_of(list, c->batch);
    }
}

static void draw_padded(uint64_t *state, struct cp_case *c, enum shard_side side,
                        enum case_list padded)
{
    int32_t list[GENERATE_BATCH_MAX] = {0};
    for (int32_t i = 0; i < c->batch; i++) {
        int64_t more = one_in(state, 2) ? generate_below(state, 2 * c->world_size + 1) : 0;
        list[i] = (int32_t)clamp(case_length(c, side, i) + more, 0, SEQLEN_MAX);
    }
    case_list_set(c, padded, list, c->batch);
}

static void draw_padding(uint64_t *state, struct cp_case *c)
{
    if (one_in(state, 3)) {
        c->pad_multiple =
            (int32_t)(one_in(state, 2) ? 2 * c->world_size : 1 + generate_below(state, 9));
        return;
    }
    if (one_in(state, 3))
        return;
    draw_padded(state, c, SIDE_Q, LIST_PADDED_Q);
    if (one_in(state, 3))
        draw_padded(state, c, SIDE_KV, LIST_PADDED_KV);
}

// A known cause of NaN gradients: on 2 ranks the second chunk of the first sequence is padding on
// one rank.
static void known_failure(struct cp_case *c)
{
    static const int32_t lengths[] = {9, 8, 8, 12, 8, 12}, padded[] = {12, 8, 8, 12, 8, 12};
    c->batch = 6;
    c->seqlen_q = c->seqlen_kv = 12;
    case_list_set(c, LIST_LENGTHS_Q, lengths, c->batch);
    case_list_set(c, LIST_PADDED_Q, padded, c->batch);
}

static void draw_sequences(uint64_t *state, int64_t seqlen_max, struct cp_case *c)
{
    c->format = (enum case_format)(FORMAT_BSHD + generate_below(state, 3));
    if (c->format == FORMAT_THD && seqlen_max >= 12 && one_in(state, 16)) {
        known_failure(c);
        return;
    }
    if (one_in(state, c->format == FORMAT_THD ? 2 : 4))
        draw_lengths(state, seqlen_max < SEQLEN_MAX / 2 ? seqlen_max : SEQLEN_MAX / 2, c);
    if (c->format == FORMAT_THD)
        draw_padding(state, c);
}

static void draw_comm(uint64_t *state, struct cp_case *c)
{
    c->comm = (enum case_comm)(COMM_P2P + generate_below(state, 4));
    if (c->comm != COMM_A2A_P2P)
        return;
    c->a2a_size = 1 + (int32_t)generate_below(state, c->world_size);
    while (c->world_size % c->a2a_size != 0)
        c->a2a_size--;
}

static void draw_mask(uint64_t *state, int64_t seqlen_max, struct cp_case *c)
{
    c->mask = (enum case_mask)(MASK_NONE + generate_below(state, 3));
    c->window_left = one_in(state, 2) ? draw_window(state, seqlen_max) : WINDOW_UNBOUNDED;
    if (c->mask == MASK_NONE)
        c->window_right = one_in(state, 2) ? draw_window(state, seqlen_max) : WINDOW_UNBOUNDED;
    else
        c->window_right = one_in(state, 2) ? 0 : WINDOW_UNBOUNDED;
}

void generate_logits(uint64_t *state, struct cp_case *c)
{
    c->softcap = one_in(state, 4) ? 1 + (double)generate_below(state, 50) : 0;
    c->softmax = SOFTMAX_VANILLA;
    if (one_in(state, 2))
        c->softmax = (enum case_softmax)(SOFTMAX_OFF_BY_ONE + generate_below(state, 2));
    c->bias = BIAS_NONE;
    if (one_in(state, 2))
        c->bias = (enum case_bias)(BIAS_111S + generate_below(state, BIAS_BHSS - BIAS_NONE));
    c->max_logit = one_in(state, 2);
}

// 0.5 to 29.5 or, in one case of four, a cap far below or above the logits.
static double draw_softcap(uint64_t *state)
{
    static const double far[] = {0.001, 0.02, 0.1, 128, 256, 300, 1000, 5000, 1e5, 1e6};
    int drawn = (int)generate_below(state, 40);
    return drawn < 30 ? 0.5 + drawn : far[drawn - 30];
}

static void draw_scores(uint64_t *state, struct cp_case *c)
{
    c->scale = one_in(state, 4) ? 0.01 + 0.001 * (double)generate_below(state, 500) : 0;
    c->softcap = one_in(state, 6) ? draw_softcap(state) : 0;
    if (one_in(state, 3))
        c->softmax = (enum case_softmax)(SOFTMAX_VANILLA + generate_below(state, 3));
    if (one_in(state, 3))
        c->bias = (enum case_bias)(BIAS_NONE + generate_below(state, BIAS_BHSS));
    c->max_logit = one_in(state, 4);
}

void generate_case(uint64_t seed, int world_size_max, int64_t seqlen_max, struct cp_case *c)
{
    uint64_t state = seed;
    case_init(c);
    snprintf(c->model, sizeof c->model, "random_%llu", (unsigned long long)seed);
    c->world_size = 1 + (int32_t)generate_below(&state, world_size_max);
    c->sharding = one_in(&state, 3) ? SHARDING_CONTIGUOUS : SHARDING_ZIGZAG;
    c->dtype = (enum case_dtype)(DTYPE_BF16 + generate_below(&state, 3));
    draw_comm(&state, c);
    draw_shape(&state, seqlen_max, c);
    draw_sequences(&state, seqlen_max, c);
    draw_mask(&state, seqlen_max, c);
    draw_scores(&state, c);
    c->training = !one_in(&state, 4);
    c->deterministic = !one_in(&state, 4);
    c->inputs = one_in(&state, 4) ? INPUTS_TE : INPUTS_SHARP;
    c->seed = generate_next(&state);
    c->explore_seed = one_in(&state, 2) ? 0 : generate_next(&state);
    if (c->mask == MASK_NONE && one_in(&state, 2))
        c->mask = MASK_NONE_BOTTOM_RIGHT;
    c->verify = one_in(&state, 4) ? VERIFY_FULL : VERIFY_AUTO;
}
