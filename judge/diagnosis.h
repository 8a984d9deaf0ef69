// SPDX-License-Identifier: Apache-2.0
// Diagnosis: names the mistake that explains a wrong result, in one sentence.
//
// Computes some rows of a failed tensor in fp64 with one of many possible mistakes: a chunk of keys
// left out or taken twice, another scale, mask or window, another head, a rank's part missing from
// a gradient, and so on. It compares the outcome of each mistake with the delivered rows. It
// returns a sentence only if one mistake explains nearly all of the error beyond rounding, and no
// mistake of another kind explains it nearly as well. The mistake may be in the rows of some heads
// or sequences, or in some rows, if all others are right; the sentence begins with them.
//
// Plain computation on one thread: no clock, no I/O. DIAGNOSIS_ELEMENTS_MAX and DIAGNOSIS_PAIRS_MAX
// bound memory and work; with long sequences fewer rows are examined, and with very long ones none.
// A search takes some tenths of a second if rows see some thousand tokens, some seconds at the
// bounds.
#ifndef CPATTN_JUDGE_DIAGNOSIS_H
#define CPATTN_JUDGE_DIAGNOSIS_H

#include "common/report.h"
#include "plan/case.h"

#define DIAGNOSIS_ROWS_MAX     48
#define DIAGNOSIS_ELEMENTS_MAX (INT64_C(1) << 24) // fp64, of the other side's inputs
#define DIAGNOSIS_PAIRS_MAX    (INT64_C(1) << 17) // of a row and a token of the other side

// X(name, subject)
#define DIAGNOSIS_LIST(X)                                                                          \
    X(NOT_FINITE, "NaN or infinity")                                                               \
    X(PADDING, "rows of padding are not zero, or a key of padding is visible")                     \
    X(EMPTY_ROW, "rows that see no token are not zero")                                            \
    X(ZERO, "rows that are zero")                                                                  \
    X(SHIFTED_ROWS, "rows in another order")                                                       \
    X(ELEMENT, "single elements")                                                                  \
    X(LSE, "the LSE: its base, or a partial one")                                                  \
    X(MISSING_KEYS, "keys left out of the softmax or of dQ")                                       \
    X(REPEATED_KEYS, "keys that count twice")                                                      \
    X(STALE_KEYS, "keys of one rank in the place of another's")                                    \
    X(SWAPPED_CHUNKS, "chunks of keys in the wrong order")                                         \
    X(MERGE, "partial results that are merged wrongly")                                            \
    X(MISSING_PART, "contributions of some queries to dK, dV are missing or count twice")          \
    X(WRONG_OWNER, "dK, dV that belong to another rank's keys")                                    \
    X(TRUNCATED, "results truncated instead of rounded")                                           \
    X(FACTOR, "a factor on the whole tensor")                                                      \
    X(SCALE, "the scale of the softmax")                                                           \
    X(MASK, "the diagonal of the mask")                                                            \
    X(WINDOW, "the window")                                                                        \
    X(ALIGNMENT, "the start of the diagonal")                                                      \
    X(LAYOUT, "inputs that are read from another place in memory")                                 \
    X(HEADS, "the assignment of heads")                                                            \
    X(DELTA, "rowsum(dO * O)")                                                                     \
    X(SINK, "the sink in the softmax")                                                             \
    X(SINK_GRADIENT, "the sign of the gradient of the sinks")                                      \
    X(BIAS, "the bias")                                                                            \
    X(SOFTCAP, "the softcap or its slope")                                                         \
    X(BOUNDARY, "the start of a sequence")                                                         \
    X(SUM, "a sum over ranks or queries with missing or repeated terms")                           \
    X(DIMS, "dims left out of the products of Q and K")                                            \
    X(ROUNDED, "numbers on the way that are rounded to too few bits")                              \
    X(NARROW_SUM, "gradients that are summed in 16 bits")                                          \
    X(ROW_FACTORS, "a factor for each row")                                                        \
    X(PART_FACTORS, "factors for parts of each row")                                               \
    X(PLACES, "some rows or dims alone")

enum diagnosis_kind {
    DIAGNOSIS_NONE = 0,
#define DIAGNOSIS_ENUM(name, about) DIAGNOSIS_##name,
    DIAGNOSIS_LIST(DIAGNOSIS_ENUM)
#undef DIAGNOSIS_ENUM
        DIAGNOSIS_KINDS
};

// A delivered row, of one token and head; for dK and dV a key head. A row of dsink or max_logit has
// all heads. A row of dbias has the sequence, head and position of the bias, each 0 for a broadcast
// dimension.
struct diagnosis_row {
    int32_t sequence, head;
    int64_t position;
    const float *got;
    double lse;           // of out: the delivered LSE; NAN: not known
    int64_t first, count; // of dbias: columns [first, first + count) are given
};

// Returns LSE and delta = dO.O of all queries of one sequence and head, in the order of positions.
// False: not available.
typedef bool diagnosis_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                                  double *delta);

struct diagnosis_input {
    const struct cp_case *c;
    int rank; // that holds the rows
    enum report_tensor tensor;
    const struct diagnosis_row *rows;
    int count;                        // up to DIAGNOSIS_ROWS_MAX
    double noise;                     // RMS error of an honest result / RMS; 0: the usual value
    bool only_zero;                   // RULE_ZERO is the only broken rule
    bool unfilled;                    // the results did not hold NaN before the run
    bool steps_unknown;               // another program's ring: its steps have no known order
    bool some;                        // rows of other heads or sequences are right
    bool alone;                       // these rows are wrong, others are right
    diagnosis_statistics *statistics; // NULL: computed if that is little work
    void *statistics_context;
    // Returns true to end the search; may be NULL. A mistake found before then must explain almost
    // all of the error.
    bool (*enough)(void *context);
    void *enough_context;
};

struct finding {
    enum diagnosis_kind kind; // NONE: no sentence, and the rest is 0
    struct diagnosis diagnosis;
};

// "MISSING_KEYS"; "NONE".
const char *diagnosis_kind_name(enum diagnosis_kind kind);

// Finds the sentence for the rows, or none; out of memory: none.
void diagnosis_find(const struct diagnosis_input *input, struct finding *result);

#endif
