// SPDX-License-Identifier: Apache-2.0
// A check, for the files that it is made of.
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

// Rows of the bias and of its gradient as the caller has them, and the lines that they are added up
// in: consecutive queries of a chunk have consecutive lines, or all the same one.
struct bias_lines {
    int64_t rows, lines;
    int64_t *line_of_row;      // [rows]; -1: the row belongs to padding
    int64_t *line_of_position; // [seqlen_q], or NULL where lines are of something else
    int64_t *position_of_row;  // likewise
    int64_t *line_of_query;    // [rows of queries]; likewise
};

struct cpattn_check {
    struct cp_case c;
    int rank;
    bool placed;         // tokens have been named, on either side
    struct rows rows[2]; // by enum shard_side
    int64_t *first[2];   // [batch]: tokens of the sequences before
    struct bias_lines bias;
    enum cpattn_sums sums;
    struct room room;
    struct given *given;  // inputs of the caller's, that the case points to; NULL: they are drawn
    uint64_t given_count; // how often they have been given
    const struct check_device *device; // whose memory arrays are; NULL: the host's
    struct device_judge *device_judge;
};

// ---- tokens -------------------------------------------------------------------------------------

// Orders the tokens. RESOURCE_EXHAUSTED when memory is short, INVALID_ARGUMENT with the row where a
// token comes twice.
enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error) MUST_CHECK;
enum status rows_alloc(const struct cp_case *c, enum shard_side side, int64_t count,
                       struct rows *rows, struct error *error) MUST_CHECK;
void rows_fini(struct rows *rows);

// The tokens that the case's sharding gives a rank.
enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error) MUST_CHECK;

// The row of a token of the check; -1 where it has none.
int64_t row_of_token(const struct cpattn_check *check, enum shard_side side, int32_t sequence,
                     int64_t position);
bool row_is_padding(const struct cpattn_check *check, enum shard_side side, int64_t row);

// The tokens of a side as spans, which free() takes: those of the rank, or after
// cpattn_check_place() of numbers in the order of the tokens, `row_step` apart. NULL when memory is
// short.
struct span *spans_of_check(const struct cpattn_check *check, enum shard_side side,
                            int64_t row_step, int *count);

// The lines of the check's queries; none without a bias.
enum status bias_lines_make(const struct cpattn_check *check, struct bias_lines *lines,
                            struct error *error) MUST_CHECK;
void bias_lines_fini(struct bias_lines *lines);
// The line of a query; -1 where the check has none for it. `row` is that of row_of_token().
int64_t bias_line_of(const struct cpattn_check *check, int32_t sequence, int64_t position,
                     int64_t row);
// Sequence and position that a row of the bias is of, each 0 where it is of all.
struct element bias_row_element(const struct cpattn_check *check, int64_t row);

// ---- tensors ------------------------------------------------------------------------------------

bool tensor_exists(enum cpattn_tensor tensor);
bool tensor_is_input(enum cpattn_tensor tensor);
// Whether the tensor has a row for each token of a side, and not for something else.
bool tensor_has_tokens(enum cpattn_tensor tensor);
enum shard_side tensor_side(enum cpattn_tensor tensor);
enum case_dtype tensor_dtype(const struct cp_case *c, enum cpattn_tensor tensor);
enum report_tensor tensor_report(enum cpattn_tensor tensor); // of a result
enum input_tensor tensor_input(enum cpattn_tensor tensor);   // of Q, K, V or dO

// Whether the case has the tensor: INVALID_ARGUMENT for a gradient of a case without training, a
// bias where there is none, and so on.
enum status tensor_check(const struct cp_case *c, enum cpattn_tensor tensor,
                         struct error *error) MUST_CHECK;

void given_destroy(struct given *given); // takes NULL

enum cpattn_status status_public(enum status status, const struct error *from,
                                 struct cpattn_error *error);

// INVALID_ARGUMENT where rows or heads of an array overlap.
enum status array_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Reads or writes the elements of one row and head.
void array_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                const struct cpattn_array *array, int64_t row, int head, float *values);
void array_write(const struct cpattn_check *check, enum cpattn_tensor tensor,
                 const struct cpattn_array *array, int64_t row, int head, const float *values);

// Room for the elements of any row and head.
float *values_alloc(const struct cp_case *c, struct error *error);

// Elements behind `data` of the first one of a row and head; bytes of an element.
int64_t array_offset(const struct cpattn_array *array, int64_t row, int head);
size_t tensor_element_bytes(const struct cp_case *c, enum cpattn_tensor tensor);

// ---- the reference ------------------------------------------------------------------------------

// Consecutive positions of a sequence and head.
struct position_range {
    enum shard_side side;
    int32_t sequence, head;
    int64_t position, count;
};

// What is expected of a range: out or dv is `wide`, dq or dk is `other`.
struct expected_rows {
    double *wide, *other, *lse, *terms;
    float *wide_twin, *other_twin;
};

// What is known of the queries once they have been walked over.
struct census {
    struct cpattn_check *check;
    bool all;            // queries are walked over, not only those of the check
    bool wants_sums;     // results that add up over queries are made
    double *statistics;  // [3][tokens of all sequences * heads]: LSE, delta, the twin's; NULL: none
    struct totals heads; // its `heads` alone, by the rank that has the queries
    double *numbers;     // the memory of these
    double *bias, *bias_twin; // [heads of the bias][lines][seqlen_kv]; NULL: not wanted
    // Memory for one range.
    double *doubles;
    float *floats;
    struct expected_rows rows;
    double *delta, *delta_twin;
};

// What a walk is for, by tensor.
enum status census_init(struct census *x, struct cpattn_check *check,
                        const bool wanted[CPATTN_TENSORS], struct error *error) MUST_CHECK;
void census_fini(struct census *x);

// Called for each range in which the check has tokens, in the same order every time: that of the
// daemon's own verification. `e` is NULL where nothing is computed.
typedef enum status range_function(void *context, const struct position_range *s,
                                   const struct expected_rows *e, struct error *error);

// Walks over a side; queries first. The function may be NULL. `compute`: the reference is made.
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
    uint64_t same; // digest of results that must be the same on all ranks
};

void verdict_append(struct cpattn_check_verdict *v, const struct figures *figures);
void verdict_write(struct cpattn_check_verdict *v);

// Judges the results that add up over queries, after the walk over them.
enum status sums_judge(const struct census *x, const struct cpattn_array *results,
                       struct cpattn_check_verdict *v, struct error *error) MUST_CHECK;
// Fills one with what is expected.
enum status sums_fill(const struct census *x, enum cpattn_tensor tensor,
                      const struct cpattn_array *array, struct error *error) MUST_CHECK;

// Looks for the sentence that explains a fail. `statistics` may be NULL.
void verdict_diagnose(struct cpattn_check *check, const struct cpattn_array *results,
                      diagnosis_statistics *statistics, void *statistics_context,
                      struct rank_report *report);

#endif
