// SPDX-License-Identifier: Apache-2.0
// The stderr of a rank. It is read continuously, so that the rank never blocks on a full pipe. A
// ring keeps the newest bytes for answers; lines go to the daemon's log, up to a rate.
#ifndef CPATTN_DAEMON_POOL_STDERR_PIPE_H
#define CPATTN_DAEMON_POOL_STDERR_PIPE_H

#include <ev.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytering.h"

// Of one rank in the log. The ring keeps the newest STDERR_RING_BYTES whatever the rate.
#define STDERR_LOG_BYTES_PER_S 4096
#define STDERR_LINE_MAX        512

struct stderr_pipe {
    struct ev_loop *loop;
    int fd; // -1: closed
    ev_io readable;
    struct bytering ring;
    int rank, world_size;
    uint32_t generation;
    char line[STDERR_LINE_MAX];
    size_t line_bytes;
    uint64_t second_ns; // when the current second of the rate began
    size_t logged_bytes, suppressed_bytes;
};

// Creates the pipe; the caller owns *write_end (close-on-exec, blocking). RESOURCE_EXHAUSTED.
enum status stderr_pipe_init(struct stderr_pipe *p, struct ev_loop *loop, int rank, int world_size,
                             uint32_t generation, int *write_end, struct error *error) MUST_CHECK;

// Reads the pending bytes, up to a bound.
void stderr_pipe_drain(struct stderr_pipe *p);

// Drains the pipe, logs the rest of the last line, and closes. The ring stays readable.
void stderr_pipe_close(struct stderr_pipe *p);

// Closes, and frees the ring. Takes a zeroed one.
void stderr_pipe_fini(struct stderr_pipe *p);

#endif
