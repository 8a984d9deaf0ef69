// SPDX-License-Identifier: Apache-2.0
// What a session leaves to a backend: memory, inputs, execution, verification. An engine is made
// once in the life of a rank and runs one case after the other.
#ifndef CPATTN_RANK_ENGINE_H
#define CPATTN_RANK_ENGINE_H

#include "rank/job.h"

struct engine {
    const struct engine_ops *ops;
};

// Called in this order for each case. After an error, or a lack, nothing but release() follows.
struct engine_ops {
    const char *name; // "cpu"
    // There is no plan to run: execute() gets a job whose plan has the buffers of inputs and
    // results and nothing else. What such an engine delivers is judged to the last element. Where
    // execute() has filled the report's refusal, verify() does not follow.
    bool brings_execution;
    double verify_work; // what a rank spends on a verdict with `verify: auto` (judge/tiles.h)
    // Chooses who computes the job's attention, and adds to *host_bytes what the engine takes of
    // the job's arena.
    enum status (*reserve)(struct engine *e, struct job *j, size_t *host_bytes,
                           struct error *error);
    // Makes sure of all other memory of the case and leaves the rest as it is, so that ranks can
    // still go back. NULL: there is none.
    enum status (*admit)(struct engine *e, const struct job *j, struct error *error);
    // Called by all ranks once all have admitted the case: what they have to settle among each
    // other. *lacks: some rank has not got the memory for it; all ranks are told so and are as they
    // were, and `error` has the sentence of the one that lacks it. NULL: there is nothing.
    enum status (*join)(struct engine *e, const struct job *j, bool *lacks, struct error *error);
    // Points the job's buffers to memory. Inputs are filled, all other bytes all ones, which is a
    // NaN in every dtype: whatever is read or delivered without having been written shall show.
    enum status (*prepare)(struct engine *e, struct job *j, struct error *error);
    // Runs the plan. Where the case wants a verdict, a part of that may still be under way
    // afterwards: verify() waits for it.
    enum status (*execute)(struct engine *e, struct job *j, struct error *error);
    // Waits for what others have put on the engine's device, as a guest's code does, or with `look`
    // for nothing. An error: the device is of no use any more. NULL: there is no device.
    enum status (*wait)(struct engine *e, bool look, struct error *error);
    // Fills the digest of the report, and figures and pass if the case wants a verdict. All ranks
    // of the case call it.
    enum status (*verify)(struct engine *e, struct job *j, struct error *error);
    // Copies bytes of the engine's memory to the host's, once verify() is through; false: it
    // cannot. NULL: it is the host's.
    bool (*read)(struct engine *e, const void *from, size_t bytes, void *to);
    void (*release)(struct engine *e); // memory that an idle rank does not keep
    void (*destroy)(struct engine *e);
};

// How a rank program makes its engine.
struct engine_setup {
    struct transport *control; // sockets, nothing under way; borrowed for the engine's life
    struct progress *progress;
    char *const *arguments; // of the command line, behind those of every rank program
    // Of a guest: nothing but inputs, memory and verdict is asked of the engine, and ranks tell
    // each other what a verdict takes over `control`. Inputs are there when prepare() returns, and
    // wait() goes before verify().
    bool guest;
};

struct engine_kind {
    const char *program;   // "cpattn-rank"
    const char *arguments; // for its usage, with a space in front; "" where it has none
    int argument_min, argument_max;
    enum status (*create)(const struct engine_setup *setup, struct engine **engine,
                          struct error *error);
};

extern const struct engine_kind engine_cpu;

#endif
