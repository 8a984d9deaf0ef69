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

// What the ranks of the worlds that are created from now on compute with; at first engine_cpu. The
// arguments of rank r: its device as text, where there may be any.
void world_engine(const struct engine_kind *kind);

// On how many devices the ranks of the worlds that are created from now on sit, in turn; at first
// 0: each has one of its own.
void world_devices(int count);

// How the ranks of the worlds that are created from now on exchange; at first by sockets, NULL.
struct world_transport {
    // What the ranks of a world have in common, made before they are forked; for the life of the
    // process. NULL: the system refuses.
    void *(*share)(int world_size);
    // As transport_socket_create(), with that.
    enum status (*create)(void *shared, int rank, int world_size, const int *peer_fds,
                          struct transport **transport, struct error *error);
};
void world_transport(const struct world_transport *kind);

// Starts the ranks. They have what this process has in memory now, a mutation included. Aborts when
// the system refuses.
struct world *world_create(int world_size);
void world_destroy(struct world *w); // takes NULL

// Runs a case on a world of its size and fills reports[world_size]. The status of the rank that
// failed first, with its sentence; the world is of no further use then. DEADLINE_EXCEEDED after
// the patience names the rank that holds up the others.
enum status world_run_on(struct world *w, const struct cp_case *c, struct rank_report *reports,
                         struct error *error) MUST_CHECK;

// How long cases may take from now on; 0: two minutes. With a limit a case ends a second after all
// of its ranks have gone to sleep for good, however fast the machine is.
void world_patience(int ms);

// What the rank that failed first said; kind 0 when it has just gone.
const struct rank_failure *world_failure(const struct world *w);
pid_t world_pid(const struct world *w, int rank);
const struct progress *world_progress(const struct world *w); // [world_size]

// The same on worlds that are kept, one of each size, and replaced after a failure.
enum status world_run(const struct cp_case *c, struct rank_report *reports,
                      struct error *error) MUST_CHECK;
void world_close_all(void);

// Whether all ranks say pass, and one number for the digests of all.
bool world_passed(const struct rank_report *reports, int world_size);
uint64_t world_digest(const struct rank_report *reports, int world_size);

// Prints the broken figures of all ranks, one per line.
void world_print(const struct cp_case *c, const struct rank_report *reports);

#endif
