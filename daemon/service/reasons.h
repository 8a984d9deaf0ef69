// SPDX-License-Identifier: Apache-2.0
// Explains why a case is refused or has no verdict, or why a pool is not up, with details that the
// pool core does not know.
#ifndef CPATTN_DAEMON_SERVICE_REASONS_H
#define CPATTN_DAEMON_SERVICE_REASONS_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/loss_reasons.h"
#include "daemon/service/service_config.h"
#include "daemon/service/tasks.h"

struct reasons {
    const struct service_config *config; // borrowed, like core and crews
    const struct core *core;
    struct crews *crews;
    struct loss_reasons losses; // why cases lost their ranks
    // Why the last start of a pool failed, by implementation and world size.
    struct error (*start_errors)[WORLD_SIZE_MAX + 1];
};

// Returns false if memory is short. The caller sets core and crews.
bool reasons_init(struct reasons *r, const struct service_config *config);
void reasons_fini(struct reasons *r); // accepts a zeroed struct

// Returns the stored error of failed starts for the pool of a START or KILL action.
struct error *reasons_start_error(struct reasons *r, const struct action *a);

// Records and logs that the processes of a pool could not be started.
void reasons_note_start(struct reasons *r, int implementation, int world_size, uint32_t generation,
                        const struct error *error);

// A rank is lost or has reported a failure. Records the reason if the rank was not ready yet and
// its pool was not killed.
void reasons_note_rank(struct reasons *r, const struct crew *crew, int rank);

// A case is answered. Records the message if the case has lost its pool by a fault of a rank.
void reasons_note_answer(struct reasons *r, const struct action *a, const struct task *task,
                         const char *message);

// Returns the detail for answer_failure(), depending on the cause: which rank blocks the devices,
// the name of a lost host, how the case has lost earlier pools, or why the pool could not be
// started; "" if there is none. Valid until the next event, and as long as `room`.
const char *reasons_detail(const struct reasons *r, const struct action *a, const struct task *task,
                           struct error *room);

// Adds the reason to a refusal: the stuck rank, if stuck ranks block all pools; the last loss, if
// the case is refused as POISON.
void reasons_explain_refusal(const struct reasons *r, const struct core_request *job,
                             struct error *error);

#endif
