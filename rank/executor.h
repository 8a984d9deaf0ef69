// SPDX-License-Identifier: Apache-2.0
// Executes a plan on the host. Each stream is a queue: an operation is ready when it is first in
// its stream and the operations that it waits for are done. Exchanges progress between compute
// operations.
#ifndef CPATTN_RANK_EXECUTOR_H
#define CPATTN_RANK_EXECUTOR_H

#include "common/report.h"
#include "kernels/backend.h"
#include "plan/plan.h"
#include "rank/attends.h"
#include "transport/transport.h"

struct execution {
    const struct plan *plan;
    void *const *buffers; // memory of the plan's buffers, by index, with inputs
    const struct backend_ops *ops;
    struct attention_backend *backend;
    struct transport *transport;   // no exchange in progress
    struct progress *progress;     // updated at every operation and before every wait
    uint64_t job;                  // part of the tag of each exchange, with phase and step
    const struct attends *attends; // prepared operations; NULL: as in rank/operations.h
    void *scratch;                 // attends->scratch_bytes
    struct op_times *op_times;     // filled in if it is not NULL
};

// Runs all operations. Without an explore_seed in the plan's case each exchange starts as early and
// each wait ends as late as the plan allows. With an explore_seed, the order of ready operations
// and the time when a finished exchange is noticed are drawn from the seed, and receive regions are
// filled with NaN when their exchange starts. The results have the same bits.
//
// Fills forward, backward, exchange and exposed times of `timings`, and e->op_times. Errors of
// operations and of the transport are returned; INTERNAL: no operation of the plan can run.
enum status executor_run(const struct execution *e, struct timings *timings,
                         struct error *error) MUST_CHECK;

#endif
