// SPDX-License-Identifier: Apache-2.0
// Reasons, beyond those that the pool core knows, why a case is refused or has no verdict, or a
// pool is not up.
#ifndef CPATTN_DAEMON_SERVICE_REASONS_H
#define CPATTN_DAEMON_SERVICE_REASONS_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/loss_reasons.h"
#include "daemon/service/service_config.h"
#include "daemon/service/tasks.h"

struct reasons {
    const struct service_config *config; // borrowed, like the next two
    const struct core *core;
    struct crews *crews;
    struct loss_reasons losses; // why cases lost their ranks
    // Why the last start of ranks failed: by implementation and world size.
    struct error (*start_errors)[WORLD_SIZE_MAX + 1];
};

// Returns false if memory is short. The caller sets core and crews.
bool reasons_init(struct reasons *r, const struct service_config *config);
void reasons_fini(struct reasons *r); // accepts a zeroed struct

// The pool of a START or KILL.
struct error *reasons_start_error(struct reasons *r, const struct action *a);

// Records and logs that the processes of a pool could not be started.
void reasons_note_start(struct reasons *r, int implementation, int world_size, uint32_t generation,
                        const struct error *error);

// A rank is lost or has reported a failure: records why, if it was not ready yet.
void reasons_note_rank(struct reasons *r, const struct crew *crew, int rank);

// A case is answered: records the reason if ranks were lost.
void reasons_note_answer(struct reasons *r, const struct action *a, const struct task *task,
                         const char *message);

// Returns what the core does not know of an answer; valid as long as `room`.
const char *reasons_detail(const struct reasons *r, const struct action *a, const struct task *task,
                           struct error *room);

// Adds the recorded reason to the refusal of a case that has killed pools, or for which there is no
// pool.
void reasons_explain_refusal(const struct reasons *r, const struct core_request *job,
                             struct error *error);

#endif
