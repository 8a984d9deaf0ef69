// SPDX-License-Identifier: Apache-2.0
// The daemon asks itself a question through its own socket, as any client would, to learn whether
// clients are served. Speaks the wire of the server library by hand (greeting, frame, request id)
// on a non-blocking socket: a dialer of the library would need threads of its own, and closing one
// too early is what can kill the listener.
#ifndef CPATTN_DAEMON_IO_PROBE_H
#define CPATTN_DAEMON_IO_PROBE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/io/listener.h"

// The progress of a probe is looked at this often. One that was greeted and then not let in is lost
// at the first look; one not even greeted gets until the second, since the machine may be slow.
#define PROBE_LOOK_NS   (UINT64_C(250) * 1000000)
#define PROBE_LOOKS_MAX 40

// A full queue of connections is a rush, or, after this many probes in a row, a dead listener.
#define PROBE_REFUSALS_MAX 3

#define PROBE_MESSAGE_MAX 512

enum probe_result {
    PROBE_SERVED,     // the answer came
    PROBE_UNSERVED,   // not let in: the listener is dead, or the path leads elsewhere
    PROBE_UNANSWERED, // let in, but disconnected or not answered
    PROBE_UNABLE,     // this process has no descriptor or memory for a connection
};

struct probe_handler {
    void *context;
    unsigned (*let_in)(void *context); // connections of this process that the server let in so far
    void (*done)(void *context, enum probe_result result);
};

struct probe {
    struct ev_loop *loop;
    struct probe_handler handler;
    char path[LISTENER_PATH_MAX];
    uint8_t message[PROBE_MESSAGE_MAX]; // greeting and request, as written
    size_t message_bytes;
    int fd;                 // -1: no probe is under way
    unsigned let_in_before; // when the probe started
    int looks, refusals;
    uint8_t answer[64];
    size_t answer_bytes; // that have come
    ev_io readable;
    ev_timer look;
};

// `request`: the bytes of a request that is answered at once; at most PROBE_MESSAGE_MAX - 32.
enum status probe_init(struct probe *p, struct ev_loop *loop, const char *path, const void *request,
                       size_t size, const struct probe_handler *handler,
                       struct error *error) MUST_CHECK;

// Starts a probe; without effect while one is under way. `done` is called once for each, either
// from here or from the loop.
void probe_start(struct probe *p);

// Ends the one under way without a call. Takes a zeroed one.
void probe_fini(struct probe *p);

#endif
