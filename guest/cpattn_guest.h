// SPDX-License-Identifier: Apache-2.0
// libcpattn-guest: turns a program into a guest of cpattnd. A guest is an implementation of
// attention, of collectives or of linear layers that cpattnd starts, keeps warm, supervises and
// judges like its own.
//
//     static int attend(struct cpattn_guest_job *job, void *context)
//     {
//         struct cpattn_guest_tensor q, out;
//         cpattn_guest_tensor(job, "q", &q);
//         cpattn_guest_tensor(job, "out", &out);
//         ... the code under test: reads q.data, writes out.data ...
//         return 0;
//     }
//
//     int main(void)
//     {
//         return cpattn_guest_main(&(struct cpattn_guest){.attend = attend});
//     }
//
// The daemon runs the program once for each rank, with the command in its settings (`guests`,
// `--guest`); a case selects it with `implementation`. The function gets one case at a time; all
// ranks get the same cases in the same order. It reads the rank's share of the inputs and fills the
// rank's share of the results. Results that it does not fill are NaN and fail. On a GPU the inputs
// are complete when the function is called, and the library waits for all streams of the device
// when it has returned. The library handles everything else: the channel to the daemon, progress,
// time limits, other ranks, report and verdict.
//
// Threads. The thread that calls cpattn_guest_main() also calls the function, and only this thread
// may call the functions below.
//
// Compatibility. Functions and enum values are added, never changed. New members are added only at
// the end of struct cpattn_guest_place: use it through its pointer. The other structs never change.
#ifndef CPATTN_GUEST_H
#define CPATTN_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CPATTN_API
#define CPATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// A rank and its resources.
struct cpattn_guest_place {
    int rank, world_size;
    int device; // CUDA's number of its GPU in this process; -1: tensors are in host memory
    // For a process group: TCP port `port` of 127.0.0.1, which only this pool uses. On rank 0
    // `listener` is a listening socket on this port; -1 on the other ranks.
    int port, listener;
};

struct cpattn_guest_job;

struct cpattn_guest {
    // Called once before the first case, on all ranks at the same time, to set up a process group.
    // May be NULL. Returns 0, or another value if the rank cannot start; then the function writes
    // the reason to `text` of `size` bytes.
    int (*start)(const struct cpattn_guest_place *place, char *text, size_t size, void *context);
    // Runs a case. Returns 0 if the results are complete, or another value if the case failed for
    // the reason passed to cpattn_guest_fail(). NULL: the guest runs only other kinds of jobs.
    int (*attend)(struct cpattn_guest_job *job, void *context);
    void *context;
};

// Serves cases until the daemon ends the pool. Returns the exit status for main(): 64, with a
// message on stderr, if cpattnd has not started the process.
CPATTN_API int cpattn_guest_main(const struct cpattn_guest *guest);

// Registers a function for jobs of another kind, "collective" or "linear", before
// cpattn_guest_main(). Such a job selects the guest with its field `implementation`. run() gets one
// job at a time and returns as attend() does. A job with `iterations` calls it that many times,
// without a change of memory between the calls. False: there is no such kind, or it already has a
// function.
//
//     static int collective(struct cpattn_guest_job *job, void *context)
//     {
//         struct cpattn_guest_tensor send, receive;
//         cpattn_guest_tensor(job, "send", &send);
//         cpattn_guest_tensor(job, "receive", &receive);
//         ... the code under test: reads send.data, writes receive.data ...
//         return 0;
//     }
//
//     cpattn_guest_add("collective", collective, NULL);
CPATTN_API bool cpattn_guest_add(const char *kind,
                                 int (*run)(struct cpattn_guest_job *job, void *context),
                                 void *context);

// ---- in attend() and run() ----------------------------------------------------------------------

// The kind of the job: "attention", "collective" or "linear".
CPATTN_API const char *cpattn_guest_kind(const struct cpattn_guest_job *job);

CPATTN_API const struct cpattn_guest_place *cpattn_guest_place(const struct cpattn_guest_job *job);

// Writes a field of the case or job as text. Names are those of `cpattn-submit case --help` or
// `cpattn-submit KIND --help` with underscores, as "head_dim_qk". Returns the length as snprintf
// does; -1: an unknown name.
CPATTN_API int cpattn_guest_field(const struct cpattn_guest_job *job, const char *name, char *text,
                                  size_t size);
// The name of the i-th field of a case; NULL after the last.
CPATTN_API const char *cpattn_guest_field_name(int i);
// The same for the kind of this job.
CPATTN_API const char *cpattn_guest_job_field_name(const struct cpattn_guest_job *job, int i);

enum cpattn_guest_dtype {
    CPATTN_GUEST_BF16 = 1,
    CPATTN_GUEST_FP16,
    CPATTN_GUEST_FP32,
    CPATTN_GUEST_INT32, // integers: collectives only
    CPATTN_GUEST_INT64,
    CPATTN_GUEST_UINT8
};

struct cpattn_guest_tensor {
    void *data; // host memory, or memory of the rank's device
    enum cpattn_guest_dtype dtype;
    int dims;                     // 1..4
    int64_t shape[4], strides[4]; // strides in elements
    size_t bytes;                 // from `data` on; 0 if the rank has no elements
};

// Finds an input or a result of this rank by its name; false: the case has no such tensor.
// - Inputs: q, k, v; do (training); sink (learnable softmax); bias (cases with a bias).
// - Results: out; dq, dk, dv (training); dsink (learnable softmax with training); dbias (bias with
//   training); max_logit (if the case asks for it); lse (optional, see cpattn_guest_has_lse()).
// - Layout: [batch][tokens][heads][dim] with bshd, [tokens][batch][heads][dim] with sbhd,
//   [tokens][heads][dim] with thd; lse [batch][heads][tokens], with thd [heads][tokens], fp32;
//   sink, dsink and max_logit [heads], fp32, the same on each rank.
// - Padding is NaN in inputs and must be zero in results.
// - Only the bytes of tensors may be written. The 256 bytes before and behind their memory are
//   compared after the run; a change fails the case and is named. k and v are one piece of memory,
//   with v behind k, and so are dk and dv.
// - Inputs may be overwritten; the answer then says which. Memory is valid until attend() returns.
//
// The bias is [1 or batch][1 or heads][1 or rows][seqlen_kv], by its shape in the case. It has a
// column for every key position of all ranks. Its rows are the rank's own queries. With thd it has
// no batch dimension: [1 or heads][rows][seqlen_kv]. The rows are then the rank's own queries if
// sequences have rows of their own, else all seqlen_q positions; positions without a query of this
// rank are NaN.
//
// dbias has the layout of the bias if its rows are the rank's own queries. Otherwise queries of all
// ranks share its rows (one row for all queries, or with thd one for each position), and the ranks
// must reduce it. Each rank then delivers a share with one dimension: of the n elements of [1 or
// heads][rows][seqlen_kv], where rows are the batch or the positions, the elements from
// rank*n/world_size up to (rank+1)*n/world_size, exclusive.
//
// Tensors of a collective: `send` and `receive`, with one dimension; cpattn-submit(1) defines their
// elements. With in_place they share memory. Only `receive` may be written.
//
// Tensors of a linear layer:
// - Inputs: x [tokens][in features], w [out][in], b [out] (with a bias); dy (training). An mlp has
//   w1, b1 and w2, b2.
// - Results: y; dx, dw, db (training); of an mlp dw1, db1 and dw2, db2.
// - A rank has a share of the out features of a column layer, of the in features of a row layer, of
//   the hidden features of an mlp, and with sequence parallelism of the tokens. Shares are as equal
//   as possible; the first ranks have one more. `w1` of a swiglu has twice the rank's hidden
//   features. cpattn-submit(1) defines the rows and columns.
// - Whole, and the same on all ranks: b of a row layer, b2, and their gradients; without sequence
//   parallelism also x and dx of a column layer and mlp, y and dy of a row layer and mlp.
// - Inputs must not be written. They and the bytes around all tensors are compared after the run.
CPATTN_API bool cpattn_guest_tensor(const struct cpattn_guest_job *job, const char *name,
                                    struct cpattn_guest_tensor *tensor);

// Elements that rank `from` sends to rank `to` in a collective all_to_all or all_to_allv, in the
// order of ranks in send and receive. -1: another job, or no such rank.
CPATTN_API int64_t cpattn_guest_message(const struct cpattn_guest_job *job, int from, int to);

// Cases only: returns the sequence and position of a row of the rank's queries or keys. Rows are
// numbered in the order [batch][token] (bshd), [token][batch] (sbhd) or [token] (thd). False: no
// such row. Positions behind the sequence's last token are padding.
CPATTN_API bool cpattn_guest_token(const struct cpattn_guest_job *job, bool keys, int64_t row,
                                   int32_t *sequence, int64_t *position);

// Nanoseconds until the daemon ends the processes of the job because its time limit has passed: 0
// if it has, INT64_MAX without a limit. A guest that is late can write to stderr where it is; the
// answer contains these lines.
CPATTN_API int64_t cpattn_guest_time_left(const struct cpattn_guest_job *job);

// Cases only: declares that the rank has filled lse. lse is judged if all ranks call this, and not
// judged if none does. If only some do, the case fails.
CPATTN_API void cpattn_guest_has_lse(struct cpattn_guest_job *job);

// Marks the begin of the backward pass, for progress and times. Waits for the device first.
CPATTN_API void cpattn_guest_backward(struct cpattn_guest_job *job);

// Gives the reason why attend() will not return 0. `unsupported`: the guest does not support the
// case; otherwise something went wrong. Use one line of printable ASCII: other bytes become "?".
CPATTN_API void cpattn_guest_fail(struct cpattn_guest_job *job, bool unsupported, const char *text);

#ifdef __cplusplus
}
#endif

#endif
