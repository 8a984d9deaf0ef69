// SPDX-License-Identifier: Apache-2.0
// What the files of the guest library share.
#ifndef CPATTN_GUEST_STATE_H
#define CPATTN_GUEST_STATE_H

#include "guest/cpattn_guest.h"
#include "rank/engine.h"

struct cpattn_guest_job {
    struct job *j;
    struct engine *engine; // that has the device
    const struct cpattn_guest_place *place;
    bool has_lse, unsupported;
    uint64_t start_ns, backward_ns; // backward_ns 0: not said
    char text[ERROR_TEXT_MAX];
};

// The program that this process is; set by cpattn_guest_main() before an engine is made.
extern const struct cpattn_guest *guest_program;

// An engine that has inputs, memory and judge of another kind of engine, and the guest's function
// in the place of a plan. It takes that kind's arguments.
extern const struct engine_kind engine_guest_cpu;

// The kind of engine for a rank with a GPU; NULL: this library has none.
extern const struct engine_kind *const engine_guest_gpu;

// CUDA's number of the device that the engine has chosen; -1: none.
int guest_device(void);

enum status guest_engine_create(const struct engine_kind *base, const struct engine_setup *setup,
                                struct engine **engine, struct error *error) MUST_CHECK;

#endif
