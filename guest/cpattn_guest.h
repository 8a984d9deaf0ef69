// SPDX-License-Identifier: Apache-2.0
// libcpattn-guest: makes a program of yours the ranks of a guest, that is, an implementation of
// attention that cpattnd starts, keeps warm, supervises and judges like its own.
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
// The daemon runs the program once for each rank, by the command of its settings (`guests`,
// `--guest`); a case names it with `implementation`. The function gets a case at a time; all ranks
// get the same cases in the same order. It has the rank's share of the inputs, and fills the rank's
// share of the results. What was not filled is NaN and fails. On a GPU inputs are there when the
// function is called, and what it has put on the device, on any stream, is waited for when it has
// returned. Channel, progress, time limits, the other ranks, report and verdict are the library's.
//
// One thread, the one that calls cpattn_guest_main(), calls the function and must call what is
// below.
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

// Where a rank runs.
struct cpattn_guest_place {
    int rank, world_size;
    int device; // CUDA's number of its GPU in this process; -1: none, tensors are in host memory
    // For a process group: TCP port `port` of 127.0.0.1 is this pool's alone. Rank 0 has a socket
    // that listens on it and may accept there; `listener` is -1 on the other ranks.
    int port, listener;
};

struct cpattn_guest_job;

struct cpattn_guest {
    // Called once before the first case, on all ranks at a time: the place to set a process group
    // up. NULL: nothing. Not 0: the rank cannot be started; `text`, of `size` bytes, takes the
    // reason.
    int (*start)(const struct cpattn_guest_place *place, char *text, size_t size, void *context);
    // Runs a case. 0: the results are there. Not 0: it failed, with what cpattn_guest_fail() was
    // told.
    int (*attend)(struct cpattn_guest_job *job, void *context);
    void *context;
};

// Serves cases until the daemon says otherwise. Gives the exit status for main(). 64 and a sentence
// on stderr where the process was not started by cpattnd.
CPATTN_API int cpattn_guest_main(const struct cpattn_guest *guest);

// ---- in attend() --------------------------------------------------------------------------------

CPATTN_API const struct cpattn_guest_place *cpattn_guest_place(const struct cpattn_guest_job *job);

// A field of the case as text, by the names of `cpattn-submit case --help`, as in "head_dim_qk".
// Returns the length as snprintf does, -1 for an unknown name.
CPATTN_API int cpattn_guest_field(const struct cpattn_guest_job *job, const char *name, char *text,
                                  size_t size);
// The name of the i-th field; NULL after the last.
CPATTN_API const char *cpattn_guest_field_name(int i);

enum cpattn_guest_dtype { CPATTN_GUEST_BF16 = 1, CPATTN_GUEST_FP16, CPATTN_GUEST_FP32 };

struct cpattn_guest_tensor {
    void *data; // in host memory, or that of the place's device
    enum cpattn_guest_dtype dtype;
    int dims;                     // 1..4
    int64_t shape[4], strides[4]; // strides in elements
    size_t bytes;                 // from `data`; 0: a rank may have no tokens
};

// An input or a result of this rank by its name; false where the case has none of this name.
// Inputs: q, k, v, do (training), sink (learnable softmax), bias (where the case has one). Results:
// out, dq, dk, dv (training), dsink (learnable softmax, training), dbias (bias, training),
// max_logit (where the case asks for it); lse may be left out by all ranks together,
// cpattn_guest_has_lse(). [batch][tokens][heads][dim] with format bshd, [tokens][batch][heads][dim]
// with sbhd, [tokens][heads][dim] with thd; lse [batch][heads][tokens], with thd [heads][tokens],
// fp32; sink, dsink and max_logit [heads], fp32, the same on each rank. Padding is NaN in inputs
// and has to be zero in results. Inputs may be overwritten. Memory is good until attend() returns.
//
// The bias has a column for each of the seqlen_kv positions of keys, on whichever rank they are,
// and is [1 or batch][1 or heads][1 or rows][seqlen_kv] as the case names it. Its rows are the
// rank's own queries, with thd without the batch where sequences have rows of their own, [1 or
// heads][rows][seqlen_kv], and else all seqlen_q positions; those that no query of the rank uses
// are NaN. dbias is as the bias where its rows are the rank's own queries. Where queries of all
// ranks share its rows, that is, where the bias has one row for all queries or with thd one for
// each position, it is added up over the ranks, which deliver a share each: of the n elements of
// memory [1 or heads][rows][seqlen_kv], where the rows are the batch's or the positions, those from
// rank*n/world_size to before (rank+1)*n/world_size. The tensor has this one dimension then.
CPATTN_API bool cpattn_guest_tensor(const struct cpattn_guest_job *job, const char *name,
                                    struct cpattn_guest_tensor *tensor);

// The tokens of the rank: sequence and position of a row of the queries, or keys. A row is one
// index [batch][token] (bshd), [token][batch] (sbhd) or [token] (thd), counted through. False
// where there is no such row. Positions behind the sequence's last token are padding.
CPATTN_API bool cpattn_guest_token(const struct cpattn_guest_job *job, bool keys, int64_t row,
                                   int32_t *sequence, int64_t *position);

// All ranks say that they have filled lse, which is judged then.
CPATTN_API void cpattn_guest_has_lse(struct cpattn_guest_job *job);

// For people, and for the times of the answer: the backward pass begins. Waits for the device.
CPATTN_API void cpattn_guest_backward(struct cpattn_guest_job *job);

// Why attend() is about to return something else than 0. `unsupported`: the case is none for this
// guest; else something went wrong. One line is best.
CPATTN_API void cpattn_guest_fail(struct cpattn_guest_job *job, bool unsupported, const char *text);

#ifdef __cplusplus
}
#endif

#endif
