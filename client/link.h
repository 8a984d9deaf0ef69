// SPDX-License-Identifier: Apache-2.0
// One connection to a daemon, on which one exchange at a time goes on. A link that is down stays
// down; whoever needs a connection again opens another. Functions may be called from any thread,
// none from a callback, and those on one link not at once, link_up() excepted.
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

// The outcome of an exchange: an answer (STATUS_OK; `data` belongs to the callee, who frees it), or
// why there is none. Called exactly once per exchange that began, from a thread of the link,
// without locks.
typedef void link_done(void *arg, enum status status, const char *text, void *data, size_t size);

// FAILED_PRECONDITION: the process was forked from one that had a link.
enum status link_check_process(struct error *error) MUST_CHECK;

// Connects, and waits for it until the given time of CLOCK_MONOTONIC. UNAVAILABLE: nobody listens;
// PERMISSION_DENIED; UNAUTHENTICATED: one of the two sides refuses the other's certificate;
// DEADLINE_EXCEEDED: somebody listens but does not answer; or what link_check_process() says.
enum status link_open(const struct link_target *target, uint64_t until_ns, struct link **link,
                      struct error *error) MUST_CHECK;

// Ends the link; an exchange under way is answered UNAVAILABLE first. Takes NULL.
void link_close(struct link *link);

// Whether the link can carry another exchange. False after one that was not answered in time, since
// its answer may still come.
bool link_up(struct link *link);

// Sends bytes (copied) and answers them through `done` no later than the deadline. No exchange may
// be under way. A failure here means that it did not begin and `done` is not called.
enum status link_exchange(struct link *link, const void *data, size_t size, uint64_t deadline_ns,
                          link_done *done, void *arg, struct error *error) MUST_CHECK;

// CLOCK_MONOTONIC.
uint64_t link_now_ns(void);

#endif
