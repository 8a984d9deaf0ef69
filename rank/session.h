// SPDX-License-Identifier: Apache-2.0
// A session runs the cases of a rank one after the other, from receipt to report. It does not
// depend on a process, channel or daemon, so that any program with a transport can run cases.
#ifndef CPATTN_RANK_SESSION_H
#define CPATTN_RANK_SESSION_H

#include <stdbool.h>

#include "rank/engine.h"
#include "rank/segments.h"

struct session {
    int rank, world_size;
    struct transport *transport;
    struct progress *progress;
    struct engine *engine;
    struct arena arena;
    struct cp_case c; // the running case
    // State of the last case, reused if the same case follows; plan NULL: none.
    struct kept {
        struct cp_case c;
        struct plan *plan;
        struct attends *attends;
        double flops;
    } kept;
    bool out_of_step; // a job was aborted: the ranks are no longer at the same point
};

// Creates an engine of `kind`, with `arguments`. Borrows transport and progress word for the life
// of the session. Rank and world size are the transport's.
enum status session_init(struct session *s, const struct engine_kind *kind, char *const *arguments,
                         struct transport *transport, struct progress *progress,
                         struct error *error) MUST_CHECK;
void session_fini(struct session *s); // may be called after a failed init, and twice

// Barrier: waits until all ranks of the world have called it.
enum status session_barrier(struct session *s, struct error *error) MUST_CHECK;

// Runs a case and fills the report. A mismatch is a result and not an error, and so is a refusal on
// which all ranks have agreed. All ranks must run the same cases under the same job numbers, in the
// same order. After an error the session is unusable. `segments`: memory of a client's tensors,
// opened for this case; NULL: none. If results cannot be delivered, the report is a refusal.
enum status session_run(struct session *s, const struct cp_case *c, uint64_t job,
                        const struct segments *segments, struct rank_report *report,
                        struct error *error) MUST_CHECK;

// Describes an error that one of these functions has just returned; accepts a zeroed session.
void session_failure(const struct session *s, const struct error *error,
                     struct rank_failure *failure);

#endif
