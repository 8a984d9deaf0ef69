// SPDX-License-Identifier: Apache-2.0
// The state of the engine of a rank on a GPU, for the files that implement it.
#ifndef CPATTN_RANK_CUDA_ENGINE_STATE_H
#define CPATTN_RANK_CUDA_ENGINE_STATE_H

#include "common/cuda/device_arena.h"
#include "judge/cuda/verification.h"
#include "rank/cuda/events.h"
#include "rank/cuda/executor.h"
#include "rank/cuda/swap_nccl.h"
#include "rank/cuda/swap_staged.h"
#include "rank/cuda/window.h"
#include "rank/engine.h"
#include "rank/providers.h"

struct cuda {
    struct engine base;
    struct progress *words; // of all ranks
    struct attention_backend *backend;
    struct own_provider own;
    struct providers providers;
    cudaStream_t compute, comm;
    struct transport *transport;    // NCCL
    struct transport *library;      // NCCL as its users have it; NULL: no other than that
    struct transport *peer;         // copy engines; NULL: not used
    struct cuda_executor *executor; // NULL in a guest, like NCCL
    struct device_arena arena;
    struct events times;
    cudaEvent_t reference_end, compare_end;
    bool alone;  // no other rank of the pool uses the device
    bool broken; // a call has failed; no further calls are made

    // Of the current case.
    size_t device_bytes;
    struct swap_nccl swap;
    struct swap_staged swap_staged; // of a guest
    struct window window;
    struct cuda_execution execution;
    int inputs[2];    // timed events around them
    int verify_begin; // timed event
    const uint64_t *sums[JOB_OUTPUTS];
    const void *given[VERIFY_CUDA_GIVEN]; // whole inputs for the judge
};

static inline struct cuda *engine_cuda_self(struct engine *e)
{
    return (struct cuda *)e;
}

// Opens the transports and the executor (rank/cuda/exchanges.c).
enum status cuda_exchanges_open(struct cuda *cuda, const struct engine_setup *setup,
                                struct error *error);

// The memory of a plan's exchanges: sets cuda->window, or adds staging memory to cuda->device_bytes
// where copy engines do not carry the plans.
enum status cuda_exchanges_reserve(struct cuda *cuda, const struct plan *plan,
                                   struct error *error) MUST_CHECK;
// The staging memory, in the window or taken from the arena; NULL: the plan has no window.
char *cuda_staging_take(struct cuda *cuda, const struct plan *plan);

// Announces the exchanges of cuda->window to the other ranks, as transport_peer_announce(). May
// move the arena, which has room for cuda->device_bytes and no pieces yet.
enum status cuda_windows_announce(struct cuda *cuda, struct transport *control, bool *lacks,
                                  struct error *error);

// Whether windows are left of the cases before, on all ranks the same. They can be freed for memory
// that a case lacks, so nothing is waited for then.
bool cuda_windows_held(const struct cuda *cuda);

// Frees the windows that are left of the cases before: *freed, on all ranks the same. All ranks
// call it, without an exchange in progress.
enum status cuda_windows_free(struct cuda *cuda, bool *freed, struct error *error);

// Opens the communicator of the library's own collectives, if this is the first job that has one
// and that of the exchanges has few channels. Then nothing is kept of the cases before. All ranks
// call it, without an exchange in progress.
enum status cuda_library_open(struct cuda *cuda, struct transport *control, struct error *error);

// Plans of other kinds of jobs, as rank/engine.h says (rank/cuda/plans.c).
enum status cuda_plan_reserve(struct engine *e, struct plan_run *run, bool *lacks,
                              struct error *error);
enum status cuda_plan_execute(struct engine *e, const struct plan_run *run, struct error *error);
enum status cuda_plan_finish(struct engine *e, struct error *error);

#endif
