// SPDX-License-Identifier: Apache-2.0
// libcpattn-check: judges attention that somebody else has computed, in the caller's process. It
// needs no daemon and no GPU.
//
//     struct cpattn_error error;
//     struct cpattn_case *c = cpattn_case_create();
//     struct cpattn_check *check;
//     if (cpattn_case_set(c, "world_size", "4", &error) != CPATTN_OK) ...
//     if (cpattn_check_create(c, 1, &check, &error) != CPATTN_OK) ...   // rank 1
//     struct cpattn_array q = {.data = memory, .row_stride = heads * dim, .head_stride = dim};
//     if (cpattn_check_fill(check, CPATTN_TENSOR_Q, &q, &error) != CPATTN_OK) ...
//     ... the code under test ...
//     struct cpattn_array results[CPATTN_TENSORS] = {[CPATTN_TENSOR_OUT] = out, ...};
//     if (cpattn_check_verify(check, results, CPATTN_TENSORS, &verdict, &error) != CPATTN_OK) ...
//
// Cases, errors and figures are those of <cpattn.h>: the verdict on the same numbers is that of the
// daemon.
//
// Tokens. A check is about some tokens: by default those that the case's sharding gives the rank,
// in the order in which its memory format has them, or any list of sequences and positions that
// cpattn_check_place() names. Row r of every array belongs to the r-th of these tokens.
//
// What adds up over queries. The largest logits, the gradient of the sinks and that of the bias are
// sums (or maxima) over queries of many ranks. cpattn_check_sums() says which the caller hands in:
// those over all queries of the case, as they are once all ranks have been added up (the default),
// or what the check's own queries make, before that. All elements that the caller has are judged.
//
// Rows of the bias and of dbias, whose columns are all seqlen_kv keys, are
// - the rows of the queries, where each sequence and query has its own (b1ss, bhss),
// - where sequences share them (11ss, 1hss): the positions of the check's queries, each once, in
// the
//   order in which they first come; with thd all positions 0 to seqlen_q - 1,
// - the sequences (b11s, bh1s), or one row for all.
//
// Memory. Arrays are host memory of the caller, or after cpattn_check_device() memory of a GPU, and
// are not kept beyond a call. Elements are of the
// case's dtype, in the machine's byte order; LSE, sinks, dsink and the largest logits are 32-bit
// floats.
// The elements of a row and head are consecutive; rows and heads may lie anywhere, with strides in
// elements. Padding, which a list has where a position is not below the length of its sequence, is
// filled with NaN, and has to come out as zeros.
//
// Threads. A check has no lock: use it from one thread at a time, any thread. Different checks work
// in parallel. Verification computes in the calling thread, and in those of the BLAS library.
#ifndef CPATTN_CHECK_H
#define CPATTN_CHECK_H

#include <cpattn.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cpattn_tensor {
    CPATTN_TENSOR_Q = 0, // inputs: [rows][heads][head_dim_qk]
    CPATTN_TENSOR_K,     // [key rows][kv_heads][head_dim_qk]
    CPATTN_TENSOR_V,     // [key rows][kv_heads][head_dim_v]
    CPATTN_TENSOR_DO,    // [rows][heads][head_dim_v]
    CPATTN_TENSOR_OUT,   // results: as dO
    CPATTN_TENSOR_LSE,   // [rows][heads], natural logarithms, 32-bit floats
    CPATTN_TENSOR_DQ,    // as q
    CPATTN_TENSOR_DK,    // as k
    CPATTN_TENSOR_DV,    // as v
    // Inputs and results of cases that have them, see above.
    CPATTN_TENSOR_BIAS,      // [rows of the bias][1 or heads][seqlen_kv]
    CPATTN_TENSOR_SINK,      // [1][heads], learnable sinks, 32-bit floats
    CPATTN_TENSOR_DBIAS,     // as the bias
    CPATTN_TENSOR_DSINK,     // as the sinks
    CPATTN_TENSOR_MAX_LOGIT, // [1][heads], the largest visible logit of each head, 32-bit floats
    CPATTN_TENSORS
};

// "q", "out"; NULL for a number outside the list.
CPATTN_API const char *cpattn_tensor_name(enum cpattn_tensor tensor);

// Where a tensor lies. `data` NULL: it is not there. With inner_rows 0 element 0 of row r and head
// h lies r * row_stride + h * head_stride elements behind `data`; else (r / inner_rows) *
// outer_stride + (r % inner_rows) * row_stride + h * head_stride, so that batch and sequence may
// have strides of their own.
struct cpattn_array {
    void *data;
    int64_t row_stride, head_stride;
    int64_t inner_rows, outer_stride;
};

struct cpattn_check;

// A check of a case. The case is copied. Fields that say how results are computed (comm, a2a_size,
// explore_seed) do not matter. INVALID_ARGUMENT: the case cannot be run, or has no such rank;
// RESOURCE_EXHAUSTED.
CPATTN_API enum cpattn_status cpattn_check_create(const struct cpattn_case *c, int rank,
                                                  struct cpattn_check **check,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API void cpattn_check_destroy(struct cpattn_check *check);

enum cpattn_side { CPATTN_QUERIES = 0, CPATTN_KEYS = 1 };

// Replaces the tokens of one side: row r is that of `positions[r]` of sequence `sequences[r]`
// (NULL: all are of sequence 0). Any order; the same token may not come twice. INVALID_ARGUMENT
// with the row that is wrong, and the tokens stay as they were.
CPATTN_API enum cpattn_status cpattn_check_place(struct cpattn_check *check, enum cpattn_side side,
                                                 const int32_t *sequences, const int64_t *positions,
                                                 int64_t count,
                                                 struct cpattn_error *error) CPATTN_MUST_CHECK;

enum cpattn_sums { CPATTN_SUMS_ALL = 0, CPATTN_SUMS_OWN = 1 };

// Which queries dbias, dsink and max_logit are over; see above.
CPATTN_API void cpattn_check_sums(struct cpattn_check *check, enum cpattn_sums sums);

// What arrays of later calls are: memory of the CUDA device of this number, on which inputs are
// drawn and results judged, without a copy to the host; or with -1 host memory, as they are at
// first. Work is put behind what is on `stream` (a cudaStream_t; NULL: the default stream) when a
// call begins, and is done when the call returns. While it is under way it needs device memory:
// that of inputs and results some three times over. The device that is current in the thread stays
// so. UNIMPLEMENTED: the library's CUDA part, libcpattn-check-cuda.so, is not there or not of this
// version. UNAVAILABLE: there is no such device.
//
// What cpattn_check_expected() hands out, and the bias of named tokens, is made on the host and
// copied. Not on a device, with UNIMPLEMENTED: of named tokens dbias, and sums over the check's own
// queries.
CPATTN_API enum cpattn_status cpattn_check_device(struct cpattn_check *check, int device,
                                                  void *stream,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;

// Rows of a tensor, its heads, and elements of a row and head (LSE: 1). All 0 where the case has no
// such tensor.
struct cpattn_shape {
    int64_t rows;
    int32_t heads, dim;
};
CPATTN_API struct cpattn_shape cpattn_check_shape(const struct cpattn_check *check,
                                                  enum cpattn_tensor tensor);

// The sequence and position of a row; -1 where there is no such row.
CPATTN_API int32_t cpattn_check_sequence(const struct cpattn_check *check, enum cpattn_side side,
                                         int64_t row);
CPATTN_API int64_t cpattn_check_position(const struct cpattn_check *check, enum cpattn_side side,
                                         int64_t row);

// Fills an input: q, k, v, dO, bias or sink. INVALID_ARGUMENT for a result, or strides that let
// rows overlap.
CPATTN_API enum cpattn_status cpattn_check_fill(const struct cpattn_check *check,
                                                enum cpattn_tensor tensor,
                                                const struct cpattn_array *array,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

// Inputs of the caller's: q, k, v, and dO where the case has training, of all tokens of all
// sequences, whichever of them the check is about. inputs[count], by enum cpattn_tensor, in the
// memory that arrays are in (cpattn_check_device()), of cpattn_check_whole() rows: a row is one
// token, in the order of the case's format (bshd: sequence by sequence; sbhd: position by position;
// thd: the sequences follow each other, each with what it occupies). They are copied, to host
// memory and to that of a device on which results are judged. cpattn_check_fill() then hands out
// the check's own part of them, and verdicts are on what follows from them; the caller answers for
// inputs with which a mistake weighs. Every rank's check needs the same ones. Bias and sinks stay
// drawn. With no memory at all inputs are drawn again.
CPATTN_API enum cpattn_status cpattn_check_give(struct cpattn_check *check,
                                                const struct cpattn_array *inputs, int count,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API struct cpattn_shape cpattn_check_whole(const struct cpattn_check *check,
                                                  enum cpattn_tensor tensor);

// Fills a result with the reference's numbers, rounded to its dtype.
CPATTN_API enum cpattn_status cpattn_check_expected(struct cpattn_check *check,
                                                    enum cpattn_tensor tensor,
                                                    const struct cpattn_array *array,
                                                    struct cpattn_error *error) CPATTN_MUST_CHECK;

// The verdict on some results; see cpattn_verdict_figures().
struct cpattn_check_verdict;

// Judges the results that are there: results[count], by enum cpattn_tensor; inputs are ignored.
// `count` is CPATTN_TENSORS. dk, dv and what adds up over all queries need the reference of all of
// these. INVALID_ARGUMENT: no result is there, or one that the case does not have.
CPATTN_API enum cpattn_status cpattn_check_verify(struct cpattn_check *check,
                                                  const struct cpattn_array *results, int count,
                                                  struct cpattn_check_verdict **verdict,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API void cpattn_check_verdict_destroy(struct cpattn_check_verdict *verdict);

CPATTN_API bool cpattn_check_verdict_pass(const struct cpattn_check_verdict *verdict);
// The index-th figures: one for each result and chunk, and one for the padding of a result where it
// has some; NULL after the last.
CPATTN_API const struct cpattn_figures *
cpattn_check_verdict_figures(const struct cpattn_check_verdict *verdict, int index);
// The mistake that explains a fail, in one sentence, where there is one that does; else "".
// `tensor` and `explained` (each may be NULL) are set to the name of the tensor that it speaks of,
// or
// "", and to its share of that tensor's squared error, 0..1.
CPATTN_API const char *cpattn_check_verdict_diagnosis(const struct cpattn_check_verdict *verdict,
                                                      const char **tensor, double *explained);
// A few lines for people: for each result how far it is from the reference, and the diagnosis.
CPATTN_API const char *cpattn_check_verdict_text(const struct cpattn_check_verdict *verdict);

#ifdef __cplusplus
}
#endif

#endif
