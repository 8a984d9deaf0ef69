// SPDX-License-Identifier: Apache-2.0
// A check, for the files that it is made of.
#ifndef CPATTN_CHECK_STATE_H
#define CPATTN_CHECK_STATE_H

#include "check/cpattn_check.h"
#include "common/report.h"
#include "judge/cpu/expected.h"
#include "plan/case.h"

// The tokens of one side. Rows are those of the caller's arrays.
struct rows {
    int64_t count;
    int32_t *sequence; // [count]
    int64_t *position; // [count]; padding has positions behind the sequence's last token
    int32_t *chunk;    // [count]: 0 or 1
    int64_t *order;    // [token_count]: rows of tokens by chunk, sequence and position
    int64_t token_count;
};

struct cpattn_check {
    struct cp_case c;
    struct rows rows[2]; // by enum shard_side
    struct room room;
};

// Rows that one function of the reference computes together.
#define STRETCH_ROWS 256

// Consecutive positions of a sequence and head.
struct stretch {
    enum shard_side side;
    int32_t sequence, head;
    int64_t position, count;
    const int64_t *rows; // [count]
    int chunk;
};

// What is expected of a stretch: out or dv is `wide`, dq or dk is `other`.
struct expected_rows {
    double *wide, *other, *lse, *terms;
    float *wide_twin, *other_twin;
};

// Called for each stretch of a side, in the same order every time; `e` is NULL where nothing is
// computed.
typedef enum status stretch_function(void *context, const struct stretch *s,
                                     const struct expected_rows *e, struct error *error);
enum status rows_walk(struct cpattn_check *check, enum shard_side side, bool compute,
                      stretch_function *function, void *context, struct error *error) MUST_CHECK;

// Orders the tokens. RESOURCE_EXHAUSTED when memory is short, INVALID_ARGUMENT with the row where a
// token comes twice.
enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error) MUST_CHECK;
enum status rows_alloc(struct rows *rows, int64_t count, struct error *error) MUST_CHECK;
void rows_fini(struct rows *rows);

// The tokens that the case's sharding gives a rank.
enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error) MUST_CHECK;

enum shard_side tensor_side(enum cpattn_tensor tensor);
enum case_dtype tensor_dtype(const struct cp_case *c, enum cpattn_tensor tensor);
enum report_tensor tensor_report(enum cpattn_tensor tensor); // of a result

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

#endif
