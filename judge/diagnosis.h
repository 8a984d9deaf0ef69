// SPDX-License-Identifier: Apache-2.0
// What a wrong result looks like, in one sentence.
//
// Some rows of a tensor that has failed are computed in fp64 as if the attention had been done
// wrong in one of many ways: a chunk of the keys left out or taken twice, another scale, mask or
// window, another head, a rank's part missing from a gradient, and so on. What such a suspicion
// would deliver is compared with what was delivered. A sentence is said only where one suspicion
// explains nearly all of the error beyond rounding and no suspicion of another kind explains it
// nearly as well.
//
// Plain computation on one thread: no clock, no I/O. Memory and work are bounded by
// DIAGNOSIS_ELEMENTS_MAX and DIAGNOSIS_PAIRS_MAX; where sequences are long, fewer rows are looked
// at, and where they are longer than that, none. A search takes some tenths of a second where rows
// see some thousand tokens, some seconds at the bounds.
#ifndef CPATTN_JUDGE_DIAGNOSIS_H
#define CPATTN_JUDGE_DIAGNOSIS_H

#include "common/report.h"
#include "plan/case.h"

#define DIAGNOSIS_ROWS_MAX     48
#define DIAGNOSIS_ELEMENTS_MAX (INT64_C(1) << 24) // fp64, of the other side's inputs
#define DIAGNOSIS_PAIRS_MAX    (INT64_C(1) << 17) // of a row and a token of the other side

// X(name, what it is about)
#define DIAGNOSIS_LIST(X)                                                                          \
    X(NOT_FINITE, "NaN or infinity")                                                               \
    X(PADDING, "rows of padding hold something, or a key of padding is seen")                      \
    X(EMPTY_ROW, "what rows that see nothing hold")                                                \
    X(ZERO, "rows that are zero")                                                                  \
    X(SHIFTED_ROWS, "rows in another order")                                                       \
    X(ELEMENT, "single elements")                                                                  \
    X(LSE, "the LSE: its base, or a partial one")                                                  \
    X(MISSING_KEYS, "keys left out of the softmax or of dQ")                                       \
    X(REPEATED_KEYS, "keys that count twice")                                                      \
    X(STALE_KEYS, "keys of one rank in the place of another's")                                    \
    X(SWAPPED_CHUNKS, "chunks of keys in the wrong order")                                         \
    X(MERGE, "partial results that are put together wrongly")                                      \
    X(MISSING_PART, "what some queries contribute to dK, dV is missing or counts twice")           \
    X(WRONG_OWNER, "dK, dV that belong to another rank's keys")                                    \
    X(TRUNCATED, "results cut off instead of rounded")                                             \
    X(FACTOR, "a factor on the whole tensor")                                                      \
    X(SCALE, "the scale of the softmax")                                                           \
    X(MASK, "the diagonal of the mask")                                                            \
    X(WINDOW, "the window")                                                                        \
    X(ALIGNMENT, "where the diagonal begins")                                                      \
    X(LAYOUT, "inputs that are read from another place in memory")                                 \
    X(HEADS, "which head reads which")                                                             \
    X(DELTA, "rowsum(dO * O)")                                                                     \
    X(SINK, "the sink in the softmax")                                                             \
    X(SINK_GRADIENT, "the sign of the gradient of the sinks")                                      \
    X(BIAS, "the bias")                                                                            \
    X(SOFTCAP, "the softcap or its slope")                                                         \
    X(BOUNDARY, "where a sequence begins")                                                         \
    X(SUM, "a sum over ranks or queries that lacks some or has some twice")                        \
    X(NARROW_SUM, "gradients that are summed in 16 bits")

enum diagnosis_kind {
    DIAGNOSIS_NONE = 0,
#define DIAGNOSIS_ENUM(name, about) DIAGNOSIS_##name,
    DIAGNOSIS_LIST(DIAGNOSIS_ENUM)
#undef DIAGNOSIS_ENUM
        DIAGNOSIS_KINDS
};

// One row as it was delivered: of a token and a head; the head of dK and dV is a key head. A row of
// dsink or max_logit is all heads. One of dbias is that of the bias's own sequence, head and
// position, each 0 where the bias has one for all.
struct diagnosis_row {
    int32_t sequence, head;
    int64_t position;
    const float *got;
    double lse;           // of out: the delivered one, NAN where it is not known
    int64_t first, count; // of dbias: columns [first, first + count) are given
};

// LSE and delta = dO.O of all queries of one sequence and head, in the order of positions. False
// where they are not to be had.
typedef bool diagnosis_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                                  double *delta);

struct diagnosis_input {
    const struct cp_case *c;
    int rank; // that holds the rows
    enum report_tensor tensor;
    const struct diagnosis_row *rows;
    int count;                        // up to DIAGNOSIS_ROWS_MAX
    double noise;                     // RMS error of an honest result / RMS; 0: what is usual
    bool zero_alone;                  // no rule but RULE_ZERO is broken
    diagnosis_statistics *statistics; // NULL: they are computed where that is little work
    void *statistics_context;
    // Whether to end the search; or NULL. What has been tried until then has to explain all but
    // all.
    bool (*enough)(void *context);
    void *enough_context;
};

struct finding {
    enum diagnosis_kind kind; // NONE: nothing is said, and the rest is 0
    struct diagnosis said;
};

// "MISSING_KEYS"; "NONE".
const char *diagnosis_kind_name(enum diagnosis_kind kind);

// Finds the sentence for the rows, or none. Where memory is short, none is found.
void diagnosis_find(const struct diagnosis_input *input, struct finding *result);

#endif
