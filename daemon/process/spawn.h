// SPDX-License-Identifier: Apache-2.0
// Starts untrusted processes, and ranks with their descriptors. A rank starts with:
//     argv  cpattn-rank RANK WORLD GENERATION DAEMON_PID, and with GPUs the index of its own; a
//           guest has the words of its command, and these numbers in CPATTN_GUEST
//     fd 0  /dev/null        fd 1, 2  the pipe for its output
//     fd 3  the channel      fd 4     memory of WORLD progress words
//     fd 5 + j  a stream socket to rank j, for every other rank j
// and no other descriptor, in its own process group, with no signal blocked or ignored, and with an
// environment of a few named variables. It is confined (daemon/process/confine.h), and killed when
// the daemon ends.
#ifndef CPATTN_DAEMON_PROCESS_SPAWN_H
#define CPATTN_DAEMON_PROCESS_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/process/confine.h"

#define SPAWN_FD_PROGRESS 4
#define SPAWN_FD_MESH     5

// Descriptors for a spawn must have this number or a higher one, because the process gets the lower
// numbers.
#define SPAWN_FD_MIN 128

// Moves a descriptor to SPAWN_FD_MIN or above, close-on-exec; closes the old number in any case.
// Returns -1 if fd is -1, or with errno if no descriptor is left.
int spawn_fd_lift(int fd);

struct spawn_process {
    const char *program; // a path
    char *const
        *arguments; // NULL: the child only checks that it could execute the program, and ends
    char *const *environment;
    const int *fds; // [fd_count], each SPAWN_FD_MIN or above: become descriptors 0, 1...; -1: none
    int fd_count;
    const struct confinement *confinement;
    pid_t parent; // 0: the caller; else the caller's parent, whose child the process becomes
};

// Starts the process. It is killed when its parent thread ends, so the parent must be a main
// thread. UNAVAILABLE names the failed call; PERMISSION_DENIED, FAILED_PRECONDITION: the user of
// the confinement cannot be set or cannot execute the program. After a failure the process has
// ended, and if *pid is not 0, `parent` has to reap it.
enum status spawn_process(const struct spawn_process *p, pid_t *pid,
                          struct error *error) MUST_CHECK;

// Checks that processes of the confinement's user can be started and can run the program:
// FAILED_PRECONDITION, PERMISSION_DENIED. Without a separate user there is nothing to check.
enum status spawn_try(const struct confinement *c, const char *program,
                      struct error *error) MUST_CHECK;

struct spawn {
    const char *program;
    char *const
        *words; // words of a guest's command, the program first; NULL: the daemon's rank program
    char *const *environment;
    const struct confinement *confinement;
    pid_t parent; // the daemon: as in struct spawn_process
    int rank, world_size;
    uint32_t generation;
    int device; // index of its GPU; -1: none
    // Descriptors, borrowed, all SPAWN_FD_MIN or above.
    int null_fd, stderr_fd, channel_fd, progress_fd;
    const int *mesh; // [world_size], -1 for the rank itself
};

// Starts a rank, as spawn_process().
enum status spawn_rank(const struct spawn *s, pid_t *pid, struct error *error) MUST_CHECK;

// The environment of ranks: one BLAS thread each, the locale C, and from the daemon's environment
// PATH, LD_LIBRARY_PATH, options of sanitizers, CUDA_*, NCCL_* and some of CPATTN_*; for guests
// also the variables of Python and frameworks. No other variables are inherited. The caller frees
// it with spawn_environment_destroy(); NULL: memory is short.
char **spawn_environment_create(bool of_guests);
void spawn_environment_destroy(char **environment);

#endif
