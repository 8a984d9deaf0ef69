// SPDX-License-Identifier: Apache-2.0
// Executes plans on the device: enqueues every operation on its stream, with events between
// streams. Does not wait.
#ifndef CPATTN_RANK_CUDA_EXECUTOR_H
#define CPATTN_RANK_CUDA_EXECUTOR_H

#include "common/report.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "rank/cuda/execution.h"
#include "transport/transport.h"

// Created once per rank; runs one plan at a time.
struct cuda_executor;

// Borrows backend and transport. `transport` enqueues exchanges on `comm`, which is not the
// backend's stream. `words`: progress words of all ranks of the pool.
enum status cuda_executor_create(struct attention_backend *backend, struct transport *transport,
                                 cudaStream_t comm, struct progress *words,
                                 struct cuda_executor **executor, struct error *error) MUST_CHECK;
void cuda_executor_destroy(struct cuda_executor *x);

// Enqueues a plan on the streams. Work that is enqueued later on the backend's stream runs after
// the whole plan. With an explore_seed in the plan's case operations are delayed at random, and
// receive regions are filled with NaN before their exchange; the results have the same bits. Errors
// of operations and of the transport are returned. Borrows plan and buffers until
// cuda_executor_wait(). With `graph` in the case the plan is captured and the graph is launched.
// While prepared operations and memory are unchanged, later calls launch the same graph.
enum status cuda_executor_start(struct cuda_executor *x, const struct cuda_execution *e,
                                struct error *error) MUST_CHECK;

// Replaces cuda_executor_start() if other code enqueues the work: sets the plan whose position
// cuda_executor_wait() reports.
void cuda_executor_take(struct cuda_executor *x, const struct cuda_execution *e);

// Waits until the backend's stream has completed its work. Meanwhile the progress word follows the
// device: the current operation of the plan, after the plan REPORT_REFERENCE. INTERNAL: CUDA or
// NCCL has failed; the error has their message and the operation.
enum status cuda_executor_wait(struct cuda_executor *x, struct error *error) MUST_CHECK;

// Call after cuda_executor_wait(). Fills forward, backward, exchange and exposed times. With
// operation_times in the case also fills *op_times, unless op_times is NULL.
enum status cuda_executor_timings(struct cuda_executor *x, struct timings *timings,
                                  struct op_times *op_times, struct error *error) MUST_CHECK;

#endif
