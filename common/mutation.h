// SPDX-License-Identifier: Apache-2.0
// Deliberate errors of arithmetic and of verification, compiled in for tests only: every verdict
// must notice them. MUTATED(DK_UNSCALED) is constant false in every build that is installed. Errors
// of plans are changes of finished plans, in tests/mutations.
#ifndef CPATTN_COMMON_MUTATION_H
#define CPATTN_COMMON_MUTATION_H

#include <stdbool.h>

// X(name, sentence). Each must be noticed by the verdict.
#define MUTATION_LIST(X)                                                                           \
    X(MERGE_WITHOUT_LSE, "partial outputs are averaged instead of weighted by their LSE")          \
    X(SCALE_5_PERCENT, "the softmax scale is 5 percent too large")                                 \
    X(SCALE_HALF_PERCENT, "the softmax scale is half a percent too large")                         \
    X(RESULTS_HALF_PERCENT, "what is delivered in the dtype is half a percent too large")          \
    X(LOAD_LOSES_BIT, "the last bit of bf16 keys and values is lost")                              \
    X(TF32_PRODUCTS, "fp32 operands of products keep 10 bits of mantissa")                         \
    X(SLOPE_NEAR_SATURATION, "the slope of the softcap is 0 where it is below a tenth")            \
    X(GQA_WRONG_HEAD, "a query head reads its neighbour's KV head")                                \
    X(SINK_GRAD_SIGN, "the gradient of the sinks has the wrong sign")                              \
    X(BIAS_SCALED, "the bias is scaled like the products of queries and keys")                     \
    X(SOFTCAP_SLOPE, "the gradient ignores the slope of the softcap")                              \
    X(MAX_BASE_2, "the largest logit is delivered for powers of 2 instead of e")                   \
    X(RAGGED_TILE, "dK and dV of the last key get nothing where keys do not fill their tile")      \
    X(HEAD_GROUP_LOST, "dV of the last key head gets nothing")                                     \
    X(DK_UNSCALED, "dK lacks the scale")                                                           \
    X(DBIAS_OVERWRITTEN, "what queries share of the bias's gradient is that of the last")          \
    X(VERIFY_SKIPS_CHUNK, "verification skips the second chunk of the queries")                    \
    X(VERIFY_SKIPS_HEAD, "verification skips the first head")                                      \
    X(VERIFY_SKIPS_PADDING, "verification does not look at padding")

enum compiled_mutation {
    MUTATION_NONE = 0,
#define MUTATION_ENUM(name, sentence) MUTATION_##name,
    MUTATION_LIST(MUTATION_ENUM)
#undef MUTATION_ENUM
        MUTATION_COUNT
};

#ifdef CPATTN_MUTATIONS
// Bit mask of roundings that other correct kernels have and the CPU kernels do not. All but
// ROUNDS_SUMS are legitimate, so no verdict may fail because of them.
enum rounding {
    ROUNDS_WEIGHTS = 1, // P and dS to the dtype before products, as on matrix units
    ROUNDS_STALE = 2,   // P against an older maximum of the row
    ROUNDS_PARTIAL = 4, // the result of a slice to the dtype before it is merged
    ROUNDS_OUT = 8,     // O to the dtype before delta is computed
    ROUNDS_CAP = 32,    // the slope of the softcap is 1 - tanh^2 of a tanh one step too small
    ROUNDS_SUMS = 16,   // dK and dV to the dtype whenever a part is added: not legitimate
};
extern int mutation_rounds;
#define ROUNDS(what) (mutation_rounds & ROUNDS_##what)

extern enum compiled_mutation mutation_active; // set by the test program
#define MUTATED(name) (mutation_active == MUTATION_##name)
#else
#define ROUNDS(what)  (0)
#define MUTATED(name) (0)
#endif

#endif
