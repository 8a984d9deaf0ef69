// SPDX-License-Identifier: Apache-2.0
// Executes plans on the device: enqueues every operation on its stream, with events between
// streams. Does not wait.
#ifndef CPATTN_RANK_CUDA_EXECUTOR_H
#define CPATTN_RANK_CUDA_EXECUTOR_H

#include "common/report.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "plan/plan.h"
#include "rank/attends.h"
#include "transport/transport.h"

// Lives as long as the rank; runs one plan at a time.
struct cuda_executor;

// Borrows backend and transports. `transport` puts exchanges on `comm`, which is not the backend's
// stream. `words` are those of all ranks of the pool.
enum status cuda_executor_create(struct attention_backend *backend, struct transport *transport,
                                 cudaStream_t comm, struct progress *words,
                                 struct cuda_executor **executor, struct error *error) MUST_CHECK;
void cuda_executor_destroy(struct cuda_executor *x);

struct cuda_execution {
    const struct plan *plan;
    void *const *buffers; // device memory of the plan's buffers, by index, ready on the
                          // backend's stream
    char *staging;        // device memory, window_staging_bytes() of it
    uint64_t job;
    const struct attends *attends; // what is prepared of the plan; NULL: it has no attention
    void *scratch;                 // device memory, attends->scratch_bytes of it
    uint64_t windows;              // transport_peer_windows(); 0: exchanges go by another transport
};

// Puts a plan on the streams; what is put on the backend's stream afterwards is behind all of it.
// With an explore_seed in the plan's case operations are delayed at random, and receive regions are
// filled with NaN before their exchange; the results are the same to the bit. Errors of operations
// and of the transport are passed on. Borrows plan and buffers until cuda_executor_wait().
// With `graph` in the case the plan is captured and the graph launched. As long as what is prepared
// and all memory are those of the time before, that graph is launched again.
enum status cuda_executor_start(struct cuda_executor *x, const struct cuda_execution *e,
                                struct error *error) MUST_CHECK;

// Names the execution that the waits are about, whose work is put on the streams by others.
void cuda_executor_take(struct cuda_executor *x, const struct cuda_execution *e);

// Waits until the backend's stream is through with all that is on it by now, and keeps the progress
// word at the operation that the device is at: first of the plan, then as REPORT_REFERENCE.
// INTERNAL with CUDA's or NCCL's sentence and the operation, when either has failed.
enum status cuda_executor_wait(struct cuda_executor *x, struct error *error) MUST_CHECK;

// Fills forward, backward, exchange and exposed times, and with operation_times in the case those
// of the operations where op_times is not NULL, after the wait.
enum status cuda_executor_timings(struct cuda_executor *x, struct timings *timings,
                                  struct op_times *op_times, struct error *error) MUST_CHECK;

#endif
