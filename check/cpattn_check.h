// SPDX-License-Identifier: Apache-2.0
// libcpattn-check: judges results of the caller's own attention, collective or linear layer, in the
// caller's process. It needs no daemon and no GPU. Attention comes first, other jobs at the end.
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
// Cases, errors and figures are those of <cpattn.h>. The same numbers get the same verdict as from
// the daemon.
//
// Tokens. A check covers a list of tokens. By default these are the tokens that the case's sharding
// gives the rank, in the order of its memory format. cpattn_check_place() replaces them by any list
// of sequences and positions. Row r of every array belongs to the r-th token.
//
// Sums over queries. max_logit, dsink and dbias are maxima or sums over the queries of many ranks.
// cpattn_check_sums() selects what the caller passes in: the values over all queries of the case
// (the default), or over the check's own queries. All elements are judged.
//
// Bias. Columns of bias and dbias are all seqlen_kv keys. Rows are
// - b1ss, bhss: the rows of the queries;
// - 11ss, 1hss: the positions of the check's queries, each once, in order of first occurrence; with
//   thd all positions 0 to seqlen_q - 1;
// - b11s, bh1s: the sequences;
// - 111s, 1h1s: one row.
//
// Memory. Arrays are host memory of the caller or, after cpattn_check_device(), GPU memory. No
// array is used after a call has returned. Elements have the case's dtype in the machine's byte
// order; LSE, sinks, dsink and max_logit are 32-bit floats. Memory is aligned to its elements. The
// elements of a row and head are consecutive; rows and heads have strides in elements. A token
// whose position is not below the length of its sequence is padding: its inputs are filled with
// NaN, its results must be zero.
//
// Threads. A check has no lock: use it from one thread at a time (any thread). Different checks
// work in parallel. Verification computes in the calling thread and in the threads of the BLAS
// library.
//
// Compatibility. The rules of <cpattn.h> hold here, too. The structs of this header have no size:
// they never change.
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
    // Inputs and results of cases with a bias, learnable sinks or max_logit; see above.
    CPATTN_TENSOR_BIAS,      // [rows of the bias][1 or heads][seqlen_kv]
    CPATTN_TENSOR_SINK,      // [1][heads], learnable sinks, 32-bit floats
    CPATTN_TENSOR_DBIAS,     // as the bias
    CPATTN_TENSOR_DSINK,     // as the sinks
    CPATTN_TENSOR_MAX_LOGIT, // [1][heads], the largest visible logit of each head, 32-bit floats
    CPATTN_TENSORS
};

// "q", "out"; NULL for an unlisted number.
CPATTN_API const char *cpattn_tensor_name(enum cpattn_tensor tensor);

// Memory of a tensor. `data` NULL: no tensor. Element 0 of row r and head h is at this offset from
// `data`, in elements:
// - inner_rows 0: r * row_stride + h * head_stride;
// - else: (r / inner_rows) * outer_stride + (r % inner_rows) * row_stride + h * head_stride, for
//   batch and sequence with separate strides.
struct cpattn_array {
    void *data;
    int64_t row_stride, head_stride;
    int64_t inner_rows, outer_stride;
};

struct cpattn_check;

// Creates a check of one rank of a case. The case is copied. Fields that describe how results are
// computed (comm, a2a_size, explore_seed) have no effect. INVALID_ARGUMENT: the case cannot run, or
// has no such rank; RESOURCE_EXHAUSTED.
CPATTN_API enum cpattn_status cpattn_check_create(const struct cpattn_case *c, int rank,
                                                  struct cpattn_check **check,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API void cpattn_check_destroy(struct cpattn_check *check);

enum cpattn_side { CPATTN_QUERIES = 0, CPATTN_KEYS = 1 };

// Replaces the tokens of one side: row r is position `positions[r]` of sequence `sequences[r]`
// (NULL: all of sequence 0), in any order, without duplicates, also of padding. INVALID_ARGUMENT
// names the wrong row; the tokens are then unchanged.
CPATTN_API enum cpattn_status cpattn_check_place(struct cpattn_check *check, enum cpattn_side side,
                                                 const int32_t *sequences, const int64_t *positions,
                                                 int64_t count,
                                                 struct cpattn_error *error) CPATTN_MUST_CHECK;

enum cpattn_sums { CPATTN_SUMS_ALL = 0, CPATTN_SUMS_OWN = 1 };

// Selects the queries that dbias, dsink and max_logit cover; see above.
CPATTN_API void cpattn_check_sums(struct cpattn_check *check, enum cpattn_sums sums);

// Selects the memory of arrays in later calls: the CUDA device `device`, or the host for -1, which
// is the default. On a device inputs are drawn and results are judged without a copy to the host. A
// call waits for the work that is on `stream` (a cudaStream_t; NULL: the default stream) when it
// begins, and its own work is complete when it returns. It needs device memory for about three
// copies of inputs and results. The current device of the thread does not change. UNIMPLEMENTED:
// the CUDA part of the library, libcpattn-check-cuda.so, is missing or has another version.
// UNAVAILABLE: there is no such device.
//
// The results of cpattn_check_expected(), and the bias after cpattn_check_place(), are computed on
// the host and copied to the device. After cpattn_check_place(), verification on a device is
// UNIMPLEMENTED for dbias, and for dsink and max_logit over the check's own queries.
CPATTN_API enum cpattn_status cpattn_check_device(struct cpattn_check *check, int device,
                                                  void *stream,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;

// Number of rows and heads of a tensor, and of elements of a row and head (LSE: 1). All 0 if the
// case has no such tensor; every case has dO.
struct cpattn_shape {
    int64_t rows;
    int32_t heads, dim;
};
CPATTN_API struct cpattn_shape cpattn_check_shape(const struct cpattn_check *check,
                                                  enum cpattn_tensor tensor);

// The sequence and position of a row; -1: no such row.
CPATTN_API int32_t cpattn_check_sequence(const struct cpattn_check *check, enum cpattn_side side,
                                         int64_t row);
CPATTN_API int64_t cpattn_check_position(const struct cpattn_check *check, enum cpattn_side side,
                                         int64_t row);

// Fills an input: q, k, v, dO, bias or sink. INVALID_ARGUMENT: the tensor is a result, or the case
// has none; rows overlap; memory is not aligned; or there is no memory, but the tensor has rows.
CPATTN_API enum cpattn_status cpattn_check_fill(const struct cpattn_check *check,
                                                enum cpattn_tensor tensor,
                                                const struct cpattn_array *array,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

// Uses the caller's inputs instead of drawn ones: q, k, v and, with training, dO. Each has all
// tokens of all sequences, whichever tokens the check covers. inputs[count] is indexed by enum
// cpattn_tensor; the memory is that of cpattn_check_device(). cpattn_check_whole() returns the
// shape. A row is one token, in the order of the case's format (bshd: sequence by sequence; sbhd:
// position by position; thd: sequence by sequence with padding). The inputs are copied to host
// memory and to the device that judges. cpattn_check_fill() then fills in the check's part of them.
// Every rank's check needs the same inputs. The caller must choose inputs that make mistakes
// visible. Bias and sinks stay drawn. If no input has memory, inputs are drawn again.
// INVALID_ARGUMENT: only some inputs have memory, it is not aligned, or an element outside of
// padding is not finite; the text names it.
CPATTN_API enum cpattn_status cpattn_check_give(struct cpattn_check *check,
                                                const struct cpattn_array *inputs, int count,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API struct cpattn_shape cpattn_check_whole(const struct cpattn_check *check,
                                                  enum cpattn_tensor tensor);

// Fills a result with the values of the reference, rounded to its dtype.
CPATTN_API enum cpattn_status cpattn_check_expected(struct cpattn_check *check,
                                                    enum cpattn_tensor tensor,
                                                    const struct cpattn_array *array,
                                                    struct cpattn_error *error) CPATTN_MUST_CHECK;

// A verdict; see cpattn_check_verdict_figures().
struct cpattn_check_verdict;

// Judges the results that have memory: results[count], indexed by enum cpattn_tensor; inputs are
// ignored. `count` is CPATTN_TENSORS. dk, dv and sums over all queries take the reference of all
// queries of the case. INVALID_ARGUMENT: there is no result, or one that the case does not have;
// rows overlap; or memory is not aligned.
CPATTN_API enum cpattn_status cpattn_check_verify(struct cpattn_check *check,
                                                  const struct cpattn_array *results, int count,
                                                  struct cpattn_check_verdict **verdict,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API void cpattn_check_verdict_destroy(struct cpattn_check_verdict *verdict);

CPATTN_API bool cpattn_check_verdict_pass(const struct cpattn_check_verdict *verdict);
// The index-th figures: one for each result and chunk, and one for the padding of a result that has
// padding; NULL after the last.
CPATTN_API const struct cpattn_figures *
cpattn_check_verdict_figures(const struct cpattn_check_verdict *verdict, int index);
// The mistake that explains a fail, in one sentence; "": none was found. Sets *tensor to the name
// of the tensor of the diagnosis, or "", and *explained to the explained share of its squared
// error, 0..1. Both may be NULL.
CPATTN_API const char *cpattn_check_verdict_diagnosis(const struct cpattn_check_verdict *verdict,
                                                      const char **tensor, double *explained);
// A few lines for people: the error of each result, and the diagnosis.
CPATTN_API const char *cpattn_check_verdict_text(const struct cpattn_check_verdict *verdict);

// ---- collectives and linear layers --------------------------------------------------------------
//
//     struct cpattn_case *c = cpattn_case_create_kind("collective");
//     struct cpattn_check_job *job;
//     if (cpattn_case_set(c, "world_size", "4", &error) != CPATTN_OK) ...
//     if (cpattn_check_job_create(c, 1, &job, &error) != CPATTN_OK) ...   // rank 1
//     if (cpattn_check_job_fill(job, "send", send, send_bytes, &error) != CPATTN_OK) ...
//     ... the code under test ...
//     struct cpattn_check_buffer results[] = {{"receive", receive, receive_bytes}};
//     if (cpattn_check_job_verify(job, results, 1, &verdict, &error) != CPATTN_OK) ...
//
// Memory is contiguous and aligned to its elements. It is host memory or, after
// cpattn_check_job_device(), GPU memory. The verdict is the same as that of the daemon. The bytes
// outside of the tensors are not compared. A check has no lock: use it from one thread at a time.

struct cpattn_check_job;

// Creates a check of one rank of a collective or a linear layer. The job is copied. Fields that
// describe how results are computed (algorithm, chunks, iterations, explore_seed, implementation,
// nodes) have no effect. INVALID_ARGUMENT: the job cannot run, has no such rank, or is of another
// kind; RESOURCE_EXHAUSTED.
CPATTN_API enum cpattn_status cpattn_check_job_create(const struct cpattn_case *c, int rank,
                                                      struct cpattn_check_job **job,
                                                      struct cpattn_error *error) CPATTN_MUST_CHECK;
CPATTN_API void cpattn_check_job_destroy(struct cpattn_check_job *job);

// Selects the memory of tensors in later calls, as cpattn_check_device() does: the CUDA device
// `device`, or the host for -1, which is the default. On a device inputs are drawn and results are
// judged there. A call waits for the work that is on `stream` (a cudaStream_t; NULL: the default
// stream) when it begins, and its own work is complete when it returns. Judging an input of a layer
// needs device memory for a second copy. So does the digest of a result whose address is no
// multiple of 8 bytes. Results of a layer that fails are copied to the host to find the mistake. If
// this function fails, later calls use host memory. UNIMPLEMENTED: libcpattn-check-cuda.so cannot
// be loaded; UNAVAILABLE: there is no such device.
CPATTN_API enum cpattn_status cpattn_check_job_device(struct cpattn_check_job *job, int device,
                                                      void *stream,
                                                      struct cpattn_error *error) CPATTN_MUST_CHECK;

struct cpattn_check_tensor {
    const char *name;  // "send", "dw1": the names of <cpattn_guest.h>
    const char *dtype; // "fp32", "bf16", "int64"
    bool is_result;
    int32_t dims;     // 1 or 2
    int64_t shape[2]; // [1] is 1 with one dimension; [0] or [1] is 0 if the rank has no elements
    size_t bytes;
};

// The rank's index-th tensor; false: there are no more.
CPATTN_API bool cpattn_check_job_tensor(const struct cpattn_check_job *job, int index,
                                        struct cpattn_check_tensor *tensor);

// Fills an input with its elements, and a result with a pattern by which the diagnosis recognizes
// memory that was never written. With in_place, fill send last. INVALID_ARGUMENT: the rank has no
// such tensor, or it has another size.
CPATTN_API enum cpattn_status cpattn_check_job_fill(const struct cpattn_check_job *job,
                                                    const char *tensor, void *data, size_t bytes,
                                                    struct cpattn_error *error) CPATTN_MUST_CHECK;

struct cpattn_check_buffer {
    const char *tensor;
    const void *data; // may be NULL with 0 bytes
    size_t bytes;
};

// Judges the named results. Named inputs must be as cpattn_check_job_fill() has filled them. Other
// tensors are not judged. INVALID_ARGUMENT: there is no buffer, a tensor is named twice, the rank
// has no such tensor or one of another size, or memory is not aligned.
CPATTN_API enum cpattn_status cpattn_check_job_verify(const struct cpattn_check_job *job,
                                                      const struct cpattn_check_buffer *buffers,
                                                      int count,
                                                      struct cpattn_check_verdict **verdict,
                                                      struct cpattn_error *error) CPATTN_MUST_CHECK;

// A digest of the verified results of a layer that must have the same bits on all ranks, such as y
// of a row layer without sequence parallelism. Compare the digests of ranks that verified the same
// tensors.
CPATTN_API uint64_t cpattn_check_verdict_digest(const struct cpattn_check_verdict *verdict);

#ifdef __cplusplus
}
#endif

#endif
