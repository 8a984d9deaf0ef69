// SPDX-License-Identifier: Apache-2.0
// An engine does the work of a session that depends on the backend: memory, inputs, execution,
// verification. A rank creates one engine, which runs one case after the other.
#ifndef CPATTN_RANK_ENGINE_H
#define CPATTN_RANK_ENGINE_H

#include "judge/collective.h"
#include "plan/kind.h"
#include "rank/job.h"

struct linear_tools; // judge/linear_view.h

struct engine {
    const struct engine_ops *ops;
    char exchange[EXCHANGE_TEXT_MAX]; // how the ranks exchange, for users; "": no text
    uint64_t limit_ns; // when the daemon ends the job, on this host's clock; 0: never
};

// A plan of a job that is not attention, for an engine. All pointers are borrowed.
struct plan_run {
    const struct plan *plan;
    uint64_t job;
    int32_t iterations; // at least 1
    // A collective to run by the library's own call (NCCL) in place of the plan's operations; NULL:
    // run the plan. Send and receive are in the engine's memory; they are set before
    // plan_execute().
    const struct collective *library;
    const void *library_send;
    void *library_receive;
    int64_t spare_bytes; // size of `spare`
    // For an engine that computes without a plan: the job's kind, its spec, and its tensors in the
    // engine's memory by the kind's index. The tensors are set before plan_execute().
    const struct job_kind *kind;
    const void *spec;
    void *const *tensors;
    struct refusal *refusal; // plan_execute() stores here why there are no results
    struct arena *arena;     // host memory; plan_reserve() reserves it
    struct transport *control;
    struct progress *progress;
    struct timings *timings;
    struct op_times *op_times; // of the last iteration's operations; NULL: not wanted
    // Set by plan_reserve(): the plan's buffers by index, with undefined contents, each surrounded
    // by its guard bytes (GUARD_BYTE of common/guard.h); and memory of the engine for the caller.
    void **buffers;
    void *spare;
};

// Called in this order for each case. After an error or missing memory only release() follows.
struct engine_ops {
    const char *name; // "cpu"
    // The engine computes without a plan: execute() and plan_execute() get a job whose plan has
    // only the buffers of inputs and results. Every element of its results is judged. If execute()
    // or plan_execute() fills in the refusal, there is nothing to verify.
    bool brings_execution;
    double verify_work; // work per rank of a verdict with `verify: auto` (judge/tiles.h)
    // Chooses the providers of the job's attention, and adds to *host_bytes the bytes that the
    // engine needs from the job's arena.
    enum status (*reserve)(struct engine *e, struct job *j, size_t *host_bytes,
                           struct error *error);
    // Ensures all other memory of the case and changes nothing else, so that the case can still be
    // refused. NULL: there is none.
    enum status (*admit)(struct engine *e, const struct job *j, struct error *error);
    // Called by all ranks if one lacks memory for the case: frees memory that ranks can only free
    // together. *freed: memory was freed, the same on all ranks; admit() is then called again.
    // NULL: there is no such memory.
    enum status (*spare)(struct engine *e, bool *freed, struct error *error);
    // Called by all ranks after all have admitted the case, for agreements between ranks. *lacks: a
    // rank has too little memory for this. All ranks learn it and are unchanged; on the rank that
    // lacks memory `error` has the reason. NULL: there is nothing to agree on.
    enum status (*join)(struct engine *e, const struct job *j, bool *lacks, struct error *error);
    // Points the job's buffers to memory, with their guard bytes (GUARD_BYTE of common/guard.h)
    // around them. Fills the inputs, and all other bytes with ones, which is NaN in every dtype, so
    // that reading or delivering unwritten memory becomes visible.
    enum status (*prepare)(struct engine *e, struct job *j, struct error *error);
    // Runs the plan. If the case is verified, work may still be in progress when this returns;
    // verify() waits for it.
    enum status (*execute)(struct engine *e, struct job *j, struct error *error);
    // Waits for all work on the engine's device, also of other code such as a guest's. With `look`
    // it only checks the device. An error: the device is unusable. NULL: there is no device.
    enum status (*wait)(struct engine *e, bool look, struct error *error);
    // Fills in the report's digest and, if the case is verified, figures and pass. All ranks of the
    // case call it.
    enum status (*verify)(struct engine *e, struct job *j, struct error *error);
    // Copies bytes from the engine's memory to the host, after verify(); false: failed. NULL: the
    // engine's memory is host memory.
    bool (*read)(struct engine *e, const void *from, size_t bytes, void *to);
    // ---- plans of other kinds of jobs, in this order; NULL: the engine runs none ----
    // Ensures all memory, on all ranks or on none. *lacks: a rank has too little; on that rank
    // `error` has the reason.
    enum status (*plan_reserve)(struct engine *e, struct plan_run *run, bool *lacks,
                                struct error *error);
    // Runs all iterations and waits for them. Forward, backward, exchange and exposed times are
    // means over the iterations. A device records the times of the last iteration only: backward,
    // exchange and exposed times of a plan are those of that iteration, and the forward time is the
    // rest of the mean; a backward that is not less than the mean becomes 0. Forward, exchange and
    // exposed times of a library call are the mean. UNIMPLEMENTED: there is no such library.
    enum status (*plan_execute)(struct engine *e, const struct plan_run *run, struct error *error);
    // All ranks call it when they no longer need the memory; release() frees it.
    enum status (*plan_finish)(struct engine *e, struct error *error);
    const struct collective_judge *collective_judge;
    const struct linear_tools *linear_tools;
    void *(*queue)(struct engine *e); // the struct cuda_queue of the engine; NULL: it has none

    void (*release)(struct engine *e); // frees memory that an idle rank does not keep
    void (*destroy)(struct engine *e);
};

// Arguments of an engine's creation.
struct engine_setup {
    struct transport *control; // sockets, no exchange in progress; borrowed for the engine's life
    struct progress *progress;
    char *const *arguments; // of the command line, behind the common arguments of rank programs
    // The rank is a guest: the engine provides inputs, memory and verdict, and does not execute.
    // Ranks exchange the messages of a verdict over `control`. Inputs are complete when prepare()
    // returns, and wait() is called before verify().
    bool guest;
};

struct engine_kind {
    const char *program;   // "cpattn-rank"
    const char *arguments; // for the usage message, with a leading space; "": none
    int argument_min, argument_max;
    enum status (*create)(const struct engine_setup *setup, struct engine **engine,
                          struct error *error);
};

extern const struct engine_kind engine_cpu;

#endif
