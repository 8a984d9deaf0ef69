// SPDX-License-Identifier: Apache-2.0
// State of the engine on a GPU, shared by the files that implement it.
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
    struct transport *transport;    // NCCL; NULL in a guest
    struct transport *library;      // NCCL with all channels, for collectives; NULL: `transport`
    struct transport *peer;         // copy engines; NULL: not used
    struct cuda_executor *executor; // NULL in a guest
    struct device_arena arena;
    struct events times;
    cudaEvent_t reference_end, compare_end; // of the judge, timed
    bool alone;                             // no other rank of the pool uses the device
    bool broken;                            // a call has failed; no further calls are made

    // Of the current case.
    size_t device_bytes;            // reserved in the arena
    struct swap_nccl swap;          // messages of the judge
    struct swap_staged swap_staged; // the same in a guest
    struct window window;
    struct cuda_execution execution;
    int inputs[2];                     // indices in `times`: before and after the inputs are filled
    int verify_begin;                  // index in `times`
    const uint64_t *sums[JOB_OUTPUTS]; // digests by job_outputs, valid after the wait; or NULL
    const void *given[VERIFY_CUDA_GIVEN]; // whole inputs for the judge
};

static inline struct cuda *engine_cuda_self(struct engine *e)
{
    return (struct cuda *)e;
}

// Opens the transports and the executor (rank/cuda/exchanges.c).
enum status cuda_exchanges_open(struct cuda *cuda, const struct engine_setup *setup,
                                struct error *error);

// Computes the memory of a plan's exchanges. With copy engines it sets cuda->window; without them
// it adds the staging memory to cuda->device_bytes.
enum status cuda_exchanges_reserve(struct cuda *cuda, const struct plan *plan,
                                   struct error *error) MUST_CHECK;
// Returns the plan's staging memory: part of the window with copy engines, else a piece of the
// arena. NULL: there is no window.
char *cuda_staging_take(struct cuda *cuda, const struct plan *plan);

// Adds the memory of a plan's exchanges and buffers, with guard bytes, to cuda->device_bytes
// (rank/cuda/plans.c).
enum status cuda_buffers_reserve(struct cuda *cuda, const struct plan *plan,
                                 struct error *error) MUST_CHECK;
// Fills in buffers[plan->buffer_count]: places in the window, or in the arena. Enqueues the setting
// of their guard bytes on the compute stream.
cudaError_t cuda_buffers_take(struct cuda *cuda, const struct plan *plan, void **buffers);

// Announces the exchanges of cuda->window to the other ranks (transport_peer_announce()). If a rank
// lacks memory, shrinks the arenas to cuda->device_bytes and announces again. This may move the
// arena, so no piece of it may have been taken.
enum status cuda_windows_announce(struct cuda *cuda, struct transport *control, bool *lacks,
                                  struct error *error);

// True if windows of earlier cases exist; the same on all ranks. If a case lacks memory, they can
// be freed, so the arena does not wait for memory of other processes then.
bool cuda_windows_held(const struct cuda *cuda);

// Frees the windows of earlier cases. *freed: there were any; the same on all ranks. All ranks call
// it, without an exchange in progress.
enum status cuda_windows_free(struct cuda *cuda, bool *freed, struct error *error);

// Opens the communicator for the library's own collectives on the first job that needs it. No
// effect without copy engines, where cuda->transport has all channels already. Frees the windows
// and the arena before. All ranks call it, without an exchange in progress.
enum status cuda_library_open(struct cuda *cuda, struct transport *control, struct error *error);

// Plans of jobs that are not attention: plan_reserve() and so on of rank/engine.h
// (rank/cuda/plans.c).
enum status cuda_plan_reserve(struct engine *e, struct plan_run *run, bool *lacks,
                              struct error *error);
enum status cuda_plan_execute(struct engine *e, const struct plan_run *run, struct error *error);
enum status cuda_plan_finish(struct engine *e, struct error *error);

#endif
