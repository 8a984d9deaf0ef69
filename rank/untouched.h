// SPDX-License-Identifier: Apache-2.0
// Memory that a job must leave as it is: the guard bytes around the buffers of its plan, which an
// engine sets when it places them, and its inputs. For jobs of any kind, in the memory of any
// engine.
#ifndef CPATTN_RANK_UNTOUCHED_H
#define CPATTN_RANK_UNTOUCHED_H

#include "common/guard.h"
#include "common/report.h"
#include "judge/collective.h"
#include "plan/plan.h"

#define UNTOUCHED_INPUTS_MAX 8

struct untouched {
    // Set by the caller, borrowed.
    const struct plan *plan;
    void *const *buffers;                  // by index in the plan
    const struct collective_judge *memory; // of the engine
    void *queue;                           // for `memory`
    int64_t key_bytes; // of attention: bytes of K, which V follows in the same buffer
    bool may_change;   // the job may change its inputs: the report only mentions it
    // Filled by untouched_begin().
    int count;
    struct untouched_input {
        const char *name;
        const char *data;
        int64_t bytes;
        uint64_t digest;
    } inputs[UNTOUCHED_INPUTS_MAX];
};

// Computes the digests of all inputs of attention and of linear layers. (The judge of collectives
// compares their send itself.) Call it when the inputs are filled. They must stay where they are.
enum status untouched_begin(struct untouched *u, struct error *error) MUST_CHECK;

// After the run: appends the figures "guards" and, if there are inputs, "inputs" to the report. A
// change breaks RULE_PADDING; then the report does not pass. The diagnosis names the tensors, and
// stands before the diagnosis that the report may already have.
enum status untouched_judge(const struct untouched *u, struct rank_report *report,
                            struct error *error) MUST_CHECK;

#endif
