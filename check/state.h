// SPDX-License-Identifier: Apache-2.0
// The state of a check, and the functions that the files of the library share.
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

// The tokens of one side. A row is a row of the caller's arrays.
struct rows {
    int64_t count;
    int32_t *sequence; // [count]
    int64_t *position; // [count]; padding has positions behind the sequence's last token
    int32_t *chunk;    // [count]: 0 or 1
    int64_t *order;    // [count]: rows of tokens, sorted by chunk, sequence and position, then the
                       // rows of padding, sorted by sequence and position
    int64_t token_count; // rows that are not padding
    int64_t *row_of;     // [tokens of all sequences]: the row of a token; -1: it has none
};

// Rows are those of the bias and dbias in the caller's arrays. Lines are those of the expected
// dbias, in struct census. Consecutive queries of a chunk have consecutive lines, or one line.
struct bias_lines {
    int64_t rows, lines;
    int64_t *line_of_row;      // [rows]; -1: the row belongs to padding
    int64_t *line_of_position; // [seqlen_q]; -1: no line; NULL: rows are not positions
    int64_t *position_of_row;  // [rows]; NULL likewise
    int64_t *line_of_query;    // [rows of queries]; -1: padding; NULL: rows are not queries
};

struct cpattn_check {
    struct cp_case c;
    int rank;
    bool placed;         // cpattn_check_place() has replaced the tokens of a side
    struct rows rows[2]; // by enum shard_side
    int64_t *first[2];   // [batch + 1]: number of tokens in all earlier sequences
    struct bias_lines bias;
    enum cpattn_sums sums;
    struct room room;
    struct given *given;  // inputs of the caller, to which c.source points; NULL: inputs are drawn
    uint64_t given_count; // successful calls of cpattn_check_give(): changes with `given`
    const struct check_device *device; // arrays are in its memory; NULL: host memory
    struct device_judge *device_judge;
};

// ---- tokens -------------------------------------------------------------------------------------

// rows_alloc() allocates the arrays. Once sequence, position and chunk are filled in, rows_order()
// fills the rest. INVALID_ARGUMENT: a token occurs twice. RESOURCE_EXHAUSTED: memory is short.
enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error) MUST_CHECK;
enum status rows_alloc(const struct cp_case *c, enum shard_side side, int64_t count,
                       struct rows *rows, struct error *error) MUST_CHECK;
void rows_fini(struct rows *rows);

// Lists the tokens that the case's sharding gives a rank.
enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error) MUST_CHECK;

// The row of a token; -1: it is not a token of the check.
int64_t row_of_token(const struct cpattn_check *check, enum shard_side side, int32_t sequence,
                     int64_t position);
bool row_is_padding(const struct cpattn_check *check, enum shard_side side, int64_t row);

// The tokens of a side as spans, to be freed. Their rows are those of the rank; after
// cpattn_check_place() they are numbered in the order of struct rows, `row_step` apart. NULL:
// memory is short.
struct span *spans_of_check(const struct cpattn_check *check, enum shard_side side,
                            int64_t row_step, int *count);

// Fills *lines for the check's queries; all 0 without a bias.
enum status bias_lines_make(const struct cpattn_check *check, struct bias_lines *lines,
                            struct error *error) MUST_CHECK;
void bias_lines_fini(struct bias_lines *lines);
// The line of a query; -1: it has none. `row` is that of row_of_token().
int64_t bias_line_of(const struct cpattn_check *check, int32_t sequence, int64_t position,
                     int64_t row);
// Sequence and position of a row of the bias; 0 for an index over which the row is broadcast.
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

// Converts a status and its error to public ones. Returns the status.
enum cpattn_status status_public(enum status status, const struct error *from,
                                 struct cpattn_error *error);

// INVALID_ARGUMENT: the array has no memory, or memory that is not aligned to its elements, or a
// negative inner_rows.
enum status array_memory_check(const struct cp_case *c, enum cpattn_tensor tensor,
                               const struct cpattn_array *array, struct error *error) MUST_CHECK;
// The same, and INVALID_ARGUMENT: rows or heads of the array overlap.
enum status array_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Reads or writes the elements of one row and head.
void array_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                const struct cpattn_array *array, int64_t row, int head, float *values);
void array_write(const struct cpattn_check *check, enum cpattn_tensor tensor,
                 const struct cpattn_array *array, int64_t row, int head, const float *values);

// Allocates values for the longest row of a head of any tensor, to be freed; NULL: memory is short.
float *values_alloc(const struct cp_case *c, struct error *error);

// Offset of a row and head from `data`, in elements; bytes of an element.
int64_t array_offset(const struct cpattn_array *array, int64_t row, int head);
size_t tensor_element_bytes(const struct cp_case *c, enum cpattn_tensor tensor);

// ---- the reference ------------------------------------------------------------------------------

// Positions [position, position + count) of a sequence and head.
struct position_range {
    enum shard_side side;
    int32_t sequence, head;
    int64_t position, count;
};

// Expected results of a range, by row: out or dv in `wide`, dq or dk in `other`. `terms`: RMS of
// the terms that cancel in an element of `other`.
struct expected_rows {
    double *wide, *other, *lse, *terms;
    float *wide_twin, *other_twin;
};

// Results of the walk over the queries, and buffers of a walk.
struct census {
    struct cpattn_check *check;
    bool all;            // the walk covers all queries of the case, not only those of the check
    bool wants_sums;     // sums over queries are computed
    double *statistics;  // [3][tokens of all sequences * heads]: LSE, delta, delta of the twin, for
                         // the walk over the keys; NULL: not wanted
    struct totals heads; // only its member `heads` is used, by the rank that has the queries
    double *numbers;     // memory of heads.heads
    double *bias, *bias_twin; // [heads of the bias][lines][seqlen_kv]; NULL: not wanted
    // Buffers for one range of up to VERIFY_BLOCK_ROWS.
    double *doubles;
    float *floats;
    struct expected_rows rows;
    double *delta, *delta_twin;
};

// Allocates what the walks need for the wanted results. Call census_fini() even on failure.
enum status census_init(struct census *x, struct cpattn_check *check,
                        const bool wanted[CPATTN_TENSORS], struct error *error) MUST_CHECK;
void census_fini(struct census *x);

// Called for each range of the walk, in the order of the daemon's verification. Some tokens of a
// range may not be the check's. `e`: expected values; NULL: not computed.
typedef enum status range_function(void *context, const struct position_range *s,
                                   const struct expected_rows *e, struct error *error);

// Walks over the tokens of a side. `compute`: also computes the reference; the queries must be
// walked so before the keys. The function may be NULL.
enum status census_walk(struct census *x, enum shard_side side, bool compute,
                        range_function *function, void *context, struct error *error) MUST_CHECK;

// LSE and delta of all queries of a sequence and head, by position; NULL: not computed.
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

// Judges max_logit, dsink and dbias, after the walk over the queries.
enum status sums_judge(const struct census *x, const struct cpattn_array *results,
                       struct cpattn_check_verdict *v, struct error *error) MUST_CHECK;
// Fills one of these results with the expected values.
enum status sums_fill(const struct census *x, enum cpattn_tensor tensor,
                      const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Searches for the diagnosis of a fail and stores it in the report. `statistics` may be NULL.
void verdict_diagnose(struct cpattn_check *check, const struct cpattn_array *results,
                      diagnosis_statistics *statistics, void *statistics_context,
                      struct rank_report *report);

#endif
