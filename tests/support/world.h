// SPDX-License-Identifier: Apache-2.0
// Cases over real ranks without a daemon: each rank is a forked process with a session, connected
// to the others by socket pairs. A world stays alive for many cases.
#ifndef CPATTN_TESTS_SUPPORT_WORLD_H
#define CPATTN_TESTS_SUPPORT_WORLD_H

#include <sys/types.h>

#include "common/report.h"
#include "plan/case.h"

struct world;
struct engine_kind;
struct transport;

// The engine of worlds created later; initially engine_cpu. Arguments of rank r: its device as
// text, if any.
void world_engine(const struct engine_kind *kind);

// The number of devices over which the ranks of worlds created later are spread; initially 0: one
// for each rank.
void world_devices(int count);

// The transport of worlds created later; initially NULL: sockets.
struct world_transport {
    // The shared state of the ranks of a world, created before the fork, for the life of the
    // process. NULL: system error.
    void *(*share)(int world_size);
    // As transport_socket_create(), with the shared state.
    enum status (*create)(void *shared, int rank, int world_size, const int *peer_fds,
                          struct transport **transport, struct error *error);
};
void world_transport(const struct world_transport *kind);

// Forks the ranks. They inherit the memory of this process, and thus its mutation. Aborts after a
// system error.
struct world *world_create(int world_size);
void world_destroy(struct world *w); // takes NULL

// Runs a case on a world of its size and fills reports[world_size]. If a rank fails, returns the
// status and the message of the first one; the world can then not be used again. DEADLINE_EXCEEDED:
// the patience is over; the message names the rank that the others wait for.
enum status world_run_on(struct world *w, const struct cp_case *c, struct rank_report *reports,
                         struct error *error) MUST_CHECK;

// Sets the time limit of later cases; 0: two minutes. With a limit a case ends about a second after
// a deadlock of its ranks.
void world_patience(int ms);

// The report of the rank that failed first; kind 0: it ended without one.
const struct rank_failure *world_failure(const struct world *w);
pid_t world_pid(const struct world *w, int rank);
const struct progress *world_progress(const struct world *w); // [world_size]

// The same on stored worlds, one of each size. A world is replaced after a failure.
enum status world_run(const struct cp_case *c, struct rank_report *reports,
                      struct error *error) MUST_CHECK;
void world_close_all(void);

// True if all ranks pass; a digest of the digests of all ranks.
bool world_passed(const struct rank_report *reports, int world_size);
uint64_t world_digest(const struct rank_report *reports, int world_size);

// Prints the broken figures of all ranks, one per line.
void world_print(const struct cp_case *c, const struct rank_report *reports);

#endif
