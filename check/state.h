// SPDX-License-Identifier: Apache-2.0
// The state of a check, for the files of the library.
#ifndef CPATTN_CHECK_STATE_H
#define CPATTN_CHECK_STATE_H

#include "check/cpattn_check.h"
#include "common/report.h"
#include "judge/cpu/expected.h"
#include "judge/diagnosis.h"
#include "judge/input_shape.h"
#include "judge/totals.h"
#include "plan/case.h"
#include "plan/shard.h"

struct check_device;
struct device_judge;
struct given;

// The tokens of one side. Rows are those of the caller's arrays.
struct rows {
    int64_t count;
    int32_t *sequence; // [count]
    int64_t *position; // [count]; padding has positions behind the sequence's last token
    int32_t *chunk;    // [count]: 0 or 1
    int64_t *order;    // [count]: rows of tokens by chunk, sequence and position, then of padding
    int64_t token_count;
    int64_t *row_of; // [tokens of all sequences]: the row of a token; -1: it has none
};

// Rows of the bias and its gradient in the caller's order, and the lines of their sums: consecutive
// queries of a chunk have consecutive lines, or all the same line.
struct bias_lines {
    int64_t rows, lines;
    int64_t *line_of_row;      // [rows]; -1: the row belongs to padding
    int64_t *line_of_position; // [seqlen_q]; NULL: lines are not positions
    int64_t *position_of_row;  // likewise
    int64_t *line_of_query;    // [rows of queries]; likewise
};

struct cpattn_check {
    struct cp_case c;
    int rank;
    bool placed;         // cpattn_check_place() has replaced the tokens of a side
    struct rows rows[2]; // by enum shard_side
    int64_t *first[2];   // [batch]: number of tokens of the sequences before
    struct bias_lines bias;
    enum cpattn_sums sums;
    struct room room;
    struct given *given;  // inputs of the caller, to which the case points; NULL: inputs are drawn
    uint64_t given_count; // number of calls that gave inputs
    const struct check_device *device; // device of the arrays; NULL: host memory
    struct device_judge *device_judge;
};

// ---- tokens -------------------------------------------------------------------------------------

// Orders the tokens. RESOURCE_EXHAUSTED: memory is short. INVALID_ARGUMENT with the row of a
// duplicate token.
enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error) MUST_CHECK;
enum status rows_alloc(const struct cp_case *c, enum shard_side side, int64_t count,
                       struct rows *rows, struct error *error) MUST_CHECK;
void rows_fini(struct rows *rows);

// The tokens that the case's sharding gives a rank.
enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error) MUST_CHECK;

// The row of a token of the check; -1: it has no such token.
int64_t row_of_token(const struct cpattn_check *check, enum shard_side side, int32_t sequence,
                     int64_t position);
bool row_is_padding(const struct cpattn_check *check, enum shard_side side, int64_t row);

// The tokens of a side as spans, from malloc(): those of the rank, or after cpattn_check_place()
// rows in the order of the tokens, `row_step` apart. NULL: memory is short.
struct span *spans_of_check(const struct cpattn_check *check, enum shard_side side,
                            int64_t row_step, int *count);

// Computes the lines of the check's queries; none without a bias.
enum status bias_lines_make(const struct cpattn_check *check, struct bias_lines *lines,
                            struct error *error) MUST_CHECK;
void bias_lines_fini(struct bias_lines *lines);
// The line of a query; -1: it has none. `row` is from row_of_token().
int64_t bias_line_of(const struct cpattn_check *check, int32_t sequence, int64_t position,
                     int64_t row);
// Sequence and position of a row of the bias, each 0 if the row is for all.
struct element bias_row_element(const struct cpattn_check *check, int64_t row);

// ---- tensors ------------------------------------------------------------------------------------

bool tensor_exists(enum cpattn_tensor tensor);
bool tensor_is_input(enum cpattn_tensor tensor);
// True if the tensor has a row for each token of a side.
bool tensor_has_tokens(enum cpattn_tensor tensor);
enum shard_side tensor_side(enum cpattn_tensor tensor);
enum case_dtype tensor_dtype(const struct cp_case *c, enum cpattn_tensor tensor);
enum report_tensor tensor_report(enum cpattn_tensor tensor); // for a result
enum input_tensor tensor_input(enum cpattn_tensor tensor);   // for Q, K, V or dO

// Checks that the case has the tensor: INVALID_ARGUMENT for a gradient without training, a bias of
// a case without bias, and so on.
enum status tensor_check(const struct cp_case *c, enum cpattn_tensor tensor,
                         struct error *error) MUST_CHECK;

void given_destroy(struct given *given); // takes NULL

enum cpattn_status status_public(enum status status, const struct error *from,
                                 struct cpattn_error *error);

// INVALID_ARGUMENT: rows or heads of an array overlap.
enum status array_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Reads or writes the elements of one row and head.
void array_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                const struct cpattn_array *array, int64_t row, int head, float *values);
void array_write(const struct cpattn_check *check, enum cpattn_tensor tensor,
                 const struct cpattn_array *array, int64_t row, int head, const float *values);

// Maximum number of elements of a row and head.
float *values_alloc(const struct cp_case *c, struct error *error);

// Offset in elements of a row and head from `data`; bytes of an element.
int64_t array_offset(const struct cpattn_array *array, int64_t row, int head);
size_t tensor_element_bytes(const struct cp_case *c, enum cpattn_tensor tensor);

// ---- the reference ------------------------------------------------------------------------------

// Consecutive positions of a sequence and head.
struct position_range {
    enum shard_side side;
    int32_t sequence, head;
    int64_t position, count;
};

// Expected results of a range: out or dv in `wide`, dq or dk in `other`.
struct expected_rows {
    double *wide, *other, *lse, *terms;
    float *wide_twin, *other_twin;
};

// Results of the walk over the queries.
struct census {
    struct cpattn_check *check;
    bool all;            // the walk covers all queries of the case, not only those of the check
    bool wants_sums;     // sums over queries are computed
    double *statistics;  // [3][tokens of all sequences * heads]: LSE, delta, the twin's; NULL: none
    struct totals heads; // only `heads`, by the rank of the queries
    double *numbers;     // their memory
    double *bias, *bias_twin; // [heads of the bias][lines][seqlen_kv]; NULL: not wanted
    // Memory for one range.
    double *doubles;
    float *floats;
    struct expected_rows rows;
    double *delta, *delta_twin;
};

// The tensors that a walk computes.
enum status census_init(struct census *x, struct cpattn_check *check,
                        const bool wanted[CPATTN_TENSORS], struct error *error) MUST_CHECK;
void census_fini(struct census *x);

// Called for each range with tokens of the check, always in the order of the daemon's verification.
// `e` is NULL if nothing is computed.
typedef enum status range_function(void *context, const struct position_range *s,
                                   const struct expected_rows *e, struct error *error);

// Walks over a side; queries first. The function may be NULL. `compute`: computes the reference.
enum status census_walk(struct census *x, enum shard_side side, bool compute,
                        range_function *function, void *context, struct error *error) MUST_CHECK;

// LSE and delta of all queries of a sequence and head, or NULL.
const double *census_lse(const struct census *x, int32_t sequence, int head);
const double *census_delta(const struct census *x, int32_t sequence, int head);

// ---- verdicts -----------------------------------------------------------------------------------

#define CHECK_CHUNKS      2
#define CHECK_TEXT_BYTES  8192
#define CHECK_FIGURES_MAX (CPATTN_TENSORS * (CHECK_CHUNKS + 1))
_Static_assert(REPORT_FIGURES_MAX >= 5 * (CHECK_CHUNKS + 1) + 3, "a report holds all figures");

struct cpattn_check_verdict {
    struct rank_report report;
    struct cpattn_figures figures[REPORT_FIGURES_MAX];
    char text[CHECK_TEXT_BYTES];
    uint64_t same; // digest of results that must have the same bits on all ranks
};

void verdict_append(struct cpattn_check_verdict *v, const struct figures *figures);
void verdict_write(struct cpattn_check_verdict *v);

// Judges the sums over queries, after the walk over the queries.
enum status sums_judge(const struct census *x, const struct cpattn_array *results,
                       struct cpattn_check_verdict *v, struct error *error) MUST_CHECK;
// Fills such a result with the expected values.
enum status sums_fill(const struct census *x, enum cpattn_tensor tensor,
                      const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Finds the diagnosis of a fail. `statistics` may be NULL.
void verdict_diagnose(struct cpattn_check *check, const struct cpattn_array *results,
                      diagnosis_statistics *statistics, void *statistics_context,
                      struct rank_report *report);

#endif
