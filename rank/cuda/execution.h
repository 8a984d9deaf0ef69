// SPDX-License-Identifier: Apache-2.0
// The arguments of a plan's execution on a device.
#ifndef CPATTN_RANK_CUDA_EXECUTION_H
#define CPATTN_RANK_CUDA_EXECUTION_H

#include "plan/plan.h"
#include "rank/attends.h"

struct cuda_execution {
    const struct plan *plan;
    void *const *buffers; // device memory of the plan's buffers, by index, ready on the
                          // backend's stream
    char *staging;        // device memory of window_staging_bytes()
    uint64_t job;
    const struct attends *attends; // prepared operations of the plan; NULL: it has no attention
    void *scratch;    // device memory of attends->scratch_bytes, or of linear_wide_bytes()
    bool untimed;     // no times are recorded, which saves calls; not with a graph
    uint64_t windows; // transport_peer_windows(); 0: not transport/peer.h
};

#endif
