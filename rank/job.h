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
    struct transport *control; // sockets, nothing under way
    struct progress *progress;
    struct rank_report *report;
    struct plan *plan;
    struct attends *attends; // NULL: the engine makes them in reserve()
    struct arena *arena;     // host memory; has room for what was reserved
    void **buffers;          // by index in the plan; memory of the engine
    struct span *spans[2];   // of the rank, by enum shard_side
    int span_count[2];
    struct span *spans_of_others; // room for shard_spans_max()
    bool lse_absent;              // no rank delivers LSE: nothing is said of it
};

// Writes the phase into the progress word.
void job_phase(const struct job *j, enum report_phase phase);

// Memory of the buffer of that role, with its size; NULL and 0 where the plan has none.
void *job_buffer(const struct job *j, enum buffer_role role, int64_t *bytes);

// The same, for who knows the size.
void *job_memory(const struct job *j, enum buffer_role role);

// Bytes of K, or of dK, in front of V or dV.
int64_t job_key_bytes(const struct job *j);

// Whether the inputs fill a buffer from the first byte to the last, but for padding, which they
// poison. A bias may have rows that no query of the rank uses.
bool job_role_is_filled(enum buffer_role role);

struct rank_results job_results(const struct job *j);

// Where LSE is absent: takes its figures out of the report, and its part in the verdict. To be
// called behind a verification.
void job_drop_absent(const struct job *j);

// The buffers that a result is made of, in the order of its digest.
#define JOB_OUTPUTS 7
extern const enum buffer_role job_outputs[JOB_OUTPUTS];

#endif
