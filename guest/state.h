// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the guest library.
#ifndef CPATTN_GUEST_STATE_H
#define CPATTN_GUEST_STATE_H

#include "guest/cpattn_guest.h"
#include "rank/engine.h"

struct cpattn_guest_job {
    const struct job *j;        // a case of attention; NULL: another kind
    const struct plan_run *run; // a job of another kind
    struct engine *engine;      // the own engine, which has the device
    const struct cpattn_guest_place *place;
    // Of any kind of job.
    uint64_t number;
    struct transport *control;
    struct progress *progress;
    struct refusal *refusal;
    struct timings *timings;

    bool has_lse, unsupported;
    int with_lse;                   // number of ranks with LSE, after all have returned
    uint64_t start_ns, backward_ns; // of one call; backward_ns 0: not marked
    uint64_t limit_ns;              // when the daemon ends the job; 0: never
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

// Its function for a kind of job, including attention; run is NULL: there is none.
struct guest_function guest_function_of(const char *kind);

// Writes the phase into the progress word.
void guest_phase(const struct cpattn_guest_job *job, enum report_phase phase);

// An engine with inputs, memory and judge of another engine, and the guest's function in place of a
// plan. It accepts the arguments of that engine.
extern const struct engine_kind engine_guest_cpu;

// The kind of engine for a rank with a GPU; NULL: this library has none.
extern const struct engine_kind *const engine_guest_gpu;

// CUDA's number of the device that the engine has chosen; -1: none.
int guest_device(void);

enum status guest_engine_create(const struct engine_kind *base, const struct engine_setup *setup,
                                struct engine **engine, struct error *error) MUST_CHECK;

#endif
