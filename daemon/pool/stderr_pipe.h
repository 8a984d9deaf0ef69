// SPDX-License-Identifier: Apache-2.0
// The stderr pipe of a rank process on this host. The daemon reads it continuously, so that the
// rank never blocks on a full pipe.
#ifndef CPATTN_DAEMON_POOL_STDERR_PIPE_H
#define CPATTN_DAEMON_POOL_STDERR_PIPE_H

#include <ev.h>
#include <stddef.h>

#include "common/status.h"

struct stderr_pipe {
    struct ev_loop *loop;
    int fd; // -1: closed
    ev_io readable;
    void *context;
    void (*wrote)(void *context, const void *data, size_t size);
};

// Creates the pipe; the caller owns *write_end (close-on-exec, blocking). `wrote` is called with
// the received bytes. RESOURCE_EXHAUSTED.
enum status stderr_pipe_init(struct stderr_pipe *p, struct ev_loop *loop,
                             void (*wrote)(void *context, const void *data, size_t size),
                             void *context, int *write_end, struct error *error) MUST_CHECK;

// Reads the pending bytes, up to about four times STDERR_RING_BYTES. Accepts a zeroed struct.
void stderr_pipe_drain(struct stderr_pipe *p);

// Closes the pipe. Accepts a zeroed struct.
void stderr_pipe_fini(struct stderr_pipe *p);

#endif
