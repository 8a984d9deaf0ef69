// SPDX-License-Identifier: Apache-2.0
// One case on one rank, as the session passes it to the engine.
#ifndef CPATTN_RANK_JOB_H
#define CPATTN_RANK_JOB_H

#include "common/arena.h"
#include "common/report.h"
#include "judge/results.h"
#include "plan/plan.h"
#include "plan/shard.h"
#include "rank/attends.h"
#include "transport/transport.h"

struct job {
    const struct cp_case *c;
    uint64_t number;
    int rank;
    struct transport *control; // sockets without an exchange in progress
    struct progress *progress;
    struct rank_report *report;
    struct plan *plan;
    struct attends *attends; // NULL: the engine creates them in reserve()
    struct arena *arena;     // host memory with the reserved size
    void **buffers;          // by index in the plan; in the engine's memory
    struct span *spans[2];   // of the rank, by enum shard_side
    int span_count[2];
    struct span *spans_of_others; // scratch for spans of any rank: room for shard_spans_max()
    bool lse_absent;              // no rank delivers LSE, so it is not judged
    bool foreign;                 // a guest's function has computed the results, not the plan
};

// Writes the phase into the progress word.
void job_phase(const struct job *j, enum report_phase phase);

// Memory and size of the plan's buffer with this role; NULL and 0: the plan has none.
void *job_buffer(const struct job *j, enum buffer_role role, int64_t *bytes);

// The same without the size.
void *job_memory(const struct job *j, enum buffer_role role);

// Bytes of K (or dK), which are followed by V (or dV) in the same buffer.
int64_t job_key_bytes(const struct job *j);

// True if filling the inputs writes every byte of a buffer with this role; padding becomes NaN.
// False for a bias: it may have rows that no query of the rank uses.
bool job_role_is_filled(enum buffer_role role);

struct rank_results job_results(const struct job *j);

// If LSE is absent: removes its figures from the report and from the verdict. Call after a
// verification.
void job_drop_absent(const struct job *j);

// The roles of result buffers, in the order in which the digest covers them.
#define JOB_OUTPUTS 7
extern const enum buffer_role job_outputs[JOB_OUTPUTS];

#endif
