// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the guest library.
#ifndef CPATTN_GUEST_STATE_H
#define CPATTN_GUEST_STATE_H

#include "guest/cpattn_guest.h"
#include "rank/engine.h"

struct cpattn_guest_job {
    const struct job *j;        // a case of attention; NULL: a job of another kind
    const struct plan_run *run; // a job of another kind; NULL: a case
    struct engine *engine;      // the CPU or CUDA engine under the guest's, which has the device
    const struct cpattn_guest_place *place;
    // For any kind of job.
    uint64_t number;
    struct transport *control;
    struct progress *progress;
    struct refusal *refusal;
    struct timings *timings;

    bool has_lse, unsupported;
    int with_lse;                   // number of ranks that deliver LSE; set after the last call
    uint64_t start_ns, backward_ns; // begin of the call, and of its backward; 0: not marked
    uint64_t limit_ns;              // the daemon ends the job at this time; 0: never
    char text[ERROR_TEXT_MAX];
};

// A function for jobs of a kind.
struct guest_function {
    const char *kind;
    int (*run)(struct cpattn_guest_job *job, void *context);
    void *context;
};

// The guest of this process; set by cpattn_guest_main() before an engine is created.
extern const struct cpattn_guest *guest_program;

// The guest's function for a kind of job, including attention; run is NULL if there is none.
struct guest_function guest_function_of(const char *kind);

// Stores the job and its phase in the progress word.
void guest_phase(const struct cpattn_guest_job *job, enum report_phase phase);

// An engine that takes inputs, memory and judge from the CPU engine, and calls the guest's function
// instead of executing a plan. It accepts the arguments of the CPU engine.
extern const struct engine_kind engine_guest_cpu;

// The same over the CUDA engine, for a rank with a GPU; NULL: this library has none.
extern const struct engine_kind *const engine_guest_gpu;

// CUDA's number of the device that the engine uses; -1: none.
int guest_device(void);

// Creates the guest's engine over an engine of kind `base`, agrees on the port of the process
// group, and calls the guest's start(). All ranks must call it at the same time.
enum status guest_engine_create(const struct engine_kind *base, const struct engine_setup *setup,
                                struct engine **engine, struct error *error) MUST_CHECK;

#endif
