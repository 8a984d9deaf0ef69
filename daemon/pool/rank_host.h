// SPDX-License-Identifier: Apache-2.0
// The shared state of all rank processes of this host. All calls on the loop's thread, which must
// be the main thread (daemon/process/spawn.h).
#ifndef CPATTN_DAEMON_POOL_RANK_HOST_H
#define CPATTN_DAEMON_POOL_RANK_HOST_H

#include "daemon/pool/squad_state.h"

// `program`: path of cpattn-rank. Program, guests and confinement are borrowed. On failure
// rank_host_fini() cleans up.
enum status rank_host_init(struct rank_host *host, struct ev_loop *loop, const char *program,
                           const struct guests *guests, const struct confinement *confinement,
                           struct error *error) MUST_CHECK;

// Call after all squads are destroyed. Kills and reaps processes that ranks have left behind, until
// deadline_ns.
void rank_host_fini(struct rank_host *host, uint64_t deadline_ns);

// Kills and reaps processes that ranks have left behind, which are children of this process. Only
// reaps them if they cannot be distinguished from other children (strays_are_ours()). Returns the
// number of remaining ones. Does nothing while the starter creates a rank.
int rank_host_reap_strays(struct rank_host *host);

#endif
