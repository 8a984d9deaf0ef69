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
    struct loss_reasons losses; // of cases that lost their ranks
    // Why ranks could not be brought up, last: by implementation and world size.
    struct error (*start_errors)[WORLD_SIZE_MAX + 1];
};

// False: memory is short. Core and crews are set by the user.
bool reasons_init(struct reasons *r, const struct service_config *config);
void reasons_fini(struct reasons *r); // takes a zeroed one

// Of a pool that a START or KILL means.
struct error *reasons_start_error(struct reasons *r, const struct action *a);

// The processes of a pool could not be had; logged.
void reasons_note_start(struct reasons *r, int implementation, int world_size, uint32_t generation,
                        const struct error *error);

// A rank is lost or says that it has failed: notes why it was not ready, if it was not.
void reasons_note_rank(struct reasons *r, const struct crew *crew, int rank);

// A case is answered: notes what it says where ranks were lost.
void reasons_note_answer(struct reasons *r, const struct action *a, const struct task *task,
                         const char *message);

// What belongs to an answer and the core does not know; valid as long as `room`.
const char *reasons_detail(const struct reasons *r, const struct action *a, const struct task *task,
                           struct error *room);

// Why the core refuses a case that has killed pools, or for which there is none: adds what is
// known.
void reasons_explain_refusal(const struct reasons *r, const struct core_request *job,
                             struct error *error);

#endif
