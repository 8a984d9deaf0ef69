// SPDX-License-Identifier: Apache-2.0
// The memory of linear layers on a rank, and how much of a layer is judged.
#include "common/guard.h"
#include "plan/linear.h"
#include "plan/plan.h"

// ---- memory of the judge ----

#define WORK_MAX     1e9     // FLOPs in fp64 for tokens, and as many for features
#define ELEMENTS_MAX 4000000 // of each result

// Number of judged tokens or features out of `length`; `elements` and `work` (FLOPs) are those of
// one.
static int64_t judged(int64_t length, int64_t elements, double work)
{
    double count = WORK_MAX / work, room = (double)ELEMENTS_MAX / (double)elements;
    count = count < 8 ? 8 : count;
    count = count > room ? room : count;
    count = count < 1 ? 1 : count;
    int64_t most = count < LINEAR_JUDGED_MAX ? (int64_t)count : LINEAR_JUDGED_MAX;
    return most < length ? most : length;
}

// FLOPs per token and weight: a value, its twin and its limit take three products, in each pass.
static double products(const struct linear *l)
{
    return l->training ? 12 : 6;
}

int64_t linear_judged_tokens(const struct linear *l, int64_t held)
{
    struct linear_sizes s = linear_sizes(l);
    double weights = (double)s.middle * (double)(s.in * s.gates + s.out);
    return judged(held, s.in + s.out, products(l) * weights);
}

int64_t linear_judged_features(const struct linear *l, int64_t held)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t wide = s.in * s.gates + s.out;
    return judged(held, wide + l->tokens, products(l) * (double)l->tokens * (double)wide);
}

// ---- memory ----

// The judges of host and device compute the results of the judged tokens and features. They compute
// the tensors between the layers in pieces. Each element takes three numbers in fp64. Inputs are
// drawn in blocks.
#define RESULT_BYTES  128                // per element of a result, with all data derived from it
#define BETWEEN_BYTES (6 * 3 * 8)        // per token and feature: h and dh of two gates, a, da
#define BETWEEN_MAX   (INT64_C(1) << 20) // tokens times features of a piece
#define BLOCK_TOKENS  256
#define BLOCK_WEIGHTS 128 // features

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Cannot overflow: sizes are at most 2^22, and each result has at most 2^23 + ELEMENTS_MAX
// elements.
static int64_t judge_bytes(const struct linear *l)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t own = linear_share(s.middle, 0, l->world_size).count, wide = s.in * s.gates + s.out;
    int64_t tokens = linear_judged_tokens(l, l->tokens), features = linear_judged_features(l, own);
    int64_t block = least(BLOCK_TOKENS, l->tokens) + 2 * least(BLOCK_WEIGHTS, own);
    int64_t results =
        RESULT_BYTES * (tokens * (s.in + s.out) + (features + 1) * (wide + l->tokens)) +
        BETWEEN_BYTES * least(BETWEEN_MAX, l->tokens * own);
    int64_t diagnosis = 8 * least(LINEAR_SAMPLE_MAX, (l->tokens + BLOCK_WEIGHTS) * (s.gates + 2) *
                                                         (s.middle + 2 * BLOCK_WEIGHTS));
    return (results > diagnosis ? results : diagnosis) + 4 * 8 * block * wide;
}

// On the host the matrices of a product in a 16-bit type are widened to fp32.
static int64_t widened_bytes(const struct linear *l, int64_t own)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t wide = s.gates * own;
    int64_t first = l->tokens * (s.in + wide) + s.in * wide;
    int64_t second = l->tokens * (own + s.out) + own * s.out;
    return l->dtype == DTYPE_FP32 ? 0 : 4 * (first > second ? first : second);
}

// Scratch of products with a bias: of the first layer, and with one rank also of the second.
static int64_t wide_bytes(const struct linear *l, int64_t own)
{
    struct linear_sizes s = linear_sizes(l);
    struct product first = {.m = l->tokens, .n = s.in > 0 ? s.gates * own : 0, .k = 1};
    struct product second = {.m = l->tokens, .n = l->world_size == 1 ? s.out : 0, .k = 1};
    int64_t a = product_wide_bytes(&first, l->bias), b = product_wide_bytes(&second, l->bias);
    return a > b ? a : b;
}

// Rank 0 has the largest share of everything. Cannot overflow: sizes are at most 2^22, a matrix is
// below 2^47 bytes, and there are fewer than ten scratch matrices.
enum status linear_memory(const struct linear *l, int64_t *rank_bytes, struct error *error)
{
    struct linear_sizes sizes = linear_sizes(l);
    int64_t own = linear_share(sizes.middle, 0, l->world_size).count;
    int64_t most = sizes.in > sizes.out ? sizes.in : sizes.out;
    int64_t scratch = l->tokens * (6 * most + 2 * (sizes.gates + 1) * own);
    int64_t total = scratch * (l->dtype == DTYPE_FP32 ? 4 : 2) + widened_bytes(l, own) +
                    wide_bytes(l, own) + (l->verify ? judge_bytes(l) : 0);
    for (int t = 0; t < LINEAR_TENSORS; t++)
        total += linear_bytes(l, 0, (enum linear_tensor)t) + 2 * (int64_t)GUARD_BYTES;
    *rank_bytes = total + 65536;
    if (total <= INT64_C(1) << 50)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "a rank would need more than 1 PiB");
}

int64_t linear_wide_bytes(const struct plan *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        bool bias = op->kind == OP_PRODUCT && op->operand[PRODUCT_BIAS].bytes > 0;
        int64_t bytes = bias ? product_wide_bytes(&op->product, true) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}
