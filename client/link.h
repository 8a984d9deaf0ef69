// SPDX-License-Identifier: Apache-2.0
// A link: one connection to a daemon, with one exchange at a time. A link that is down stays down;
// open another one to reconnect. Functions may be called from any thread, but not from a callback,
// and, except link_up(), not concurrently on one link.
#ifndef CPATTN_CLIENT_LINK_H
#define CPATTN_CLIENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/net_url.h"
#include "common/status.h"

// Longest path of a unix socket, and longest address, with its NUL.
#define LINK_PATH_MAX    108
#define LINK_ADDRESS_MAX NET_URL_TEXT_MAX

struct link;
struct nng_tls_config;

struct link_target {
    char address[LINK_ADDRESS_MAX]; // the path of a unix socket, or a URL of common/net_url.h
    struct nng_tls_config *tls;     // with tls+tcp://; see client/link_tls.h
};

// The outcome of an exchange: an answer (STATUS_OK; the callee frees `data`), or the failure.
// Called exactly once for each exchange that has begun, from a thread of the link, without locks.
typedef void link_done(void *arg, enum status status, const char *text, void *data, size_t size);

// FAILED_PRECONDITION: the process was forked from a process with a link.
enum status link_check_process(struct error *error) MUST_CHECK;

// Connects, and waits until the given time of CLOCK_MONOTONIC. UNAVAILABLE: there is no listener;
// PERMISSION_DENIED; UNAUTHENTICATED: one side refuses the other's certificate; DEADLINE_EXCEEDED:
// the listener does not answer; or the status of link_check_process().
enum status link_open(const struct link_target *target, uint64_t until_ns, struct link **link,
                      struct error *error) MUST_CHECK;

// Ends the link; an exchange under way is answered UNAVAILABLE first. Takes NULL.
void link_close(struct link *link);

// True if the link can carry another exchange. False after an exchange that was not answered in
// time, because its answer may still arrive.
bool link_up(struct link *link);

// Sends bytes (copied) and calls `done` with the answer, at the deadline at the latest. No exchange
// may be under way. On failure the exchange has not begun and `done` is not called.
enum status link_exchange(struct link *link, const void *data, size_t size, uint64_t deadline_ns,
                          link_done *done, void *arg, struct error *error) MUST_CHECK;

// CLOCK_MONOTONIC.
uint64_t link_now_ns(void);

#endif
