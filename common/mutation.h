// SPDX-License-Identifier: Apache-2.0
// Deliberate errors, compiled in for tests only, that prove that verification notices them.
// `if (MUTATED(DROP_STEP)) ...` is constant false in every build that is installed.
#ifndef CPATTN_COMMON_MUTATION_H
#define CPATTN_COMMON_MUTATION_H

#include <stdbool.h>

// X(name, sentence). Each must be noticed by the verdict, the plan checker, or both.
#define MUTATION_LIST(X)                                                                           \
    X(DROP_STEP, "one remote ring step is not attended")                                           \
    X(MERGE_WITHOUT_LSE, "partial outputs are averaged instead of weighted by their LSE")          \
    X(MASK_OFF_BY_ONE, "the causal mask admits one key too many")                                  \
    X(SWAP_CHUNKS, "the two chunks of a remote rank are taken in the wrong order")                 \
    X(SCALE_5_PERCENT, "the softmax scale is 5 percent too large")                                 \
    X(MISSING_WAIT, "a compute operation does not wait for the exchange that feeds it")            \
    X(WAIT_LEFT_OUT, "one wait that the builder derived is left out")                              \
    X(DK_WRONG_OWNER, "the dK and dV contributions go home one hop short")                         \
    X(DROP_DQ_STEP, "the dQ of one remote step is lost")                                           \
    X(DROP_DKV_ADD, "the travelling dK, dV is not added once")                                     \
    X(ROWDOT_ZERO, "D = rowsum(dO * O) is left at zero")                                           \
    X(LSE_PARTIAL, "backward uses the LSE of the first step instead of the final one")             \
    X(STALE_SLOT, "a step attends the KV slot of the step before")                                 \
    X(GQA_WRONG_HEAD, "a query head reads its neighbour's KV head")                                \
    X(CONVERT_TRUNCATES, "the output conversion zeroes the last row")                              \
    X(GATHER_DROP_PART, "all-gather: the dK, dV that one rank computed are not added")             \
    X(A2A_WRONG_HEADS, "all-to-all: a rank sends each member the query heads of the next")         \
    X(A2A_DROP_MEMBER, "all-to-all: the dK, dV that one member computed are not added")            \
    X(SINK_DROPPED, "the sink is left out of the denominator")                                     \
    X(SINK_GRAD_SIGN, "the gradient of the sinks has the wrong sign")                              \
    X(SUM_DROPS_RANK, "what is summed per head over all ranks lacks one of them")                  \
    X(BIAS_LOCAL_COLUMN, "the bias is read at the local instead of the global place of a key")     \
    X(BIAS_SCALED, "the bias is scaled like the products of queries and keys")                     \
    X(DBIAS_DROPS_RANK, "the gradient of the bias lacks the part of one rank")                     \
    X(SOFTCAP_SLOPE, "the gradient ignores the slope of the softcap")                              \
    X(MAX_BASE_2, "the largest logit is delivered for powers of 2 instead of e")                   \
    X(WINDOW_OFF_BY_ONE, "the window is one key narrower on the left")                             \
    X(BOTTOM_RIGHT_TOP_LEFT, "bottom-right alignment is taken for top-left")                       \
    X(SEQUENCE_BOUNDARY, "keys of the second packed sequence begin one row early")                 \
    X(CHUNK_ROUNDED_DOWN, "the last chunk of the keys loses what does not divide")                 \
    X(PADDING_KEY_SEEN, "the first key of the padding is visible")                                 \
    X(PADDING_NOT_ZERO, "output rows of padding keep what was in memory")                          \
    X(SINK_TWICE, "the sink enters the softmax twice")                                             \
    X(MAX_OWN_SHARD, "the largest logit is that of the own queries alone")                         \
    X(BIAS_COLUMN_SHIFTED, "the bias of remote keys is that of their left neighbours")             \
    X(DBIAS_STEP_LOST, "the bias gets no gradient from a remote step")                             \
    X(REPLICATED_KV_LOST, "a replicated key head's gradient lacks the last member's part")         \
    X(GATHER_WRONG_OWNER, "a part of dK and dV goes to the owner after the right one")             \
    X(RAGGED_TILE, "dK and dV of the last key get nothing where keys do not fill their tile")      \
    X(HEAD_GROUP_LOST, "dV of the last key head gets nothing")                                     \
    X(DK_UNSCALED, "dK lacks the scale")                                                           \
    X(HOP_DROPS_CHUNK, "one hop adds the dK, dV of the first of two chunks alone")                 \
    X(DIAGONAL_OF_LAST_CHUNK, "the mask admits one key too many in the last chunk of a rank")      \
    X(WINDOW_PACKED, "the window is one key wider on the left in all but the first sequence")      \
    X(SINK_GRAD_ONE_RANK, "the gradient of the sinks is what the queries of one rank make it")     \
    X(DBIAS_OVERWRITTEN, "what queries share of the bias's gradient is that of the last")          \
    X(EMPTY_ROW_FINITE, "the LSE of a row that sees nothing is a number")                          \
    X(STALE_SUM, "the sum of dQ begins with what its memory held")                                 \
    X(ADDS_CHANGE_PLACES, "the order of additions differs from run to run")                        \
    X(VERIFY_SKIPS_CHUNK, "verification skips the second chunk of the queries")                    \
    X(VERIFY_SKIPS_HEAD, "verification skips the first head")                                      \
    X(VERIFY_SKIPS_PADDING, "verification does not look at padding")

enum mutation {
    MUTATION_NONE = 0,
#define MUTATION_ENUM(name, sentence) MUTATION_##name,
    MUTATION_LIST(MUTATION_ENUM)
#undef MUTATION_ENUM
        MUTATION_COUNT
};

#ifdef CPATTN_MUTATIONS
// No error: the CPU's kernels round P and dS to the dtype before they multiply by them, as kernels
// on matrix units have to.
extern bool mutation_rounds;
#define ROUNDS_WEIGHTS mutation_rounds

extern enum mutation mutation_active; // by the test program, as the place
#define MUTATED(name) (mutation_active == MUTATION_##name)

// Every other time it is asked in a process.
extern unsigned int mutation_turns;
#define MUTATED_IN_TURN(name) (MUTATED(name) && mutation_turns++ % 2 == 0)

// The same of one operation of a rank's plan.
extern struct mutation_place {
    int rank, op;
} mutation_place;
#define MUTATED_AT(name, at_rank, at_op)                                                           \
    (MUTATED(name) && mutation_place.rank == (at_rank) && mutation_place.op == (at_op))
#else
#define ROUNDS_WEIGHTS                   (0)
#define MUTATED(name)                    (0)
#define MUTATED_IN_TURN(name)            (0)
#define MUTATED_AT(name, at_rank, at_op) (0)
#endif

#endif
