// SPDX-License-Identifier: Apache-2.0
// One connection to a daemon and the exchanges on it. A link that is down stays down; whoever needs
// a connection again opens another. All functions may be called from any thread, none from a
// callback.
#ifndef CPATTN_CLIENT_LINK_H
#define CPATTN_CLIENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

// Longest path of a unix socket, with its NUL.
#define LINK_PATH_MAX 108

struct link;

// The outcome of an exchange: an answer (STATUS_OK; `data` belongs to the callee, who frees it), or
// why there is none. Called exactly once per exchange that began, from a thread of the link,
// without locks.
typedef void link_done(void *arg, enum status status, const char *text, void *data, size_t size);

// Connects, and waits for it until the given time of CLOCK_MONOTONIC. The link has one holder then.
// UNAVAILABLE: nobody listens; PERMISSION_DENIED; DEADLINE_EXCEEDED: somebody listens but does not
// answer; FAILED_PRECONDITION: the process was forked from one that had a link.
enum status link_open(const char *path, uint64_t until_ns, struct link **link,
                      struct error *error) MUST_CHECK;

// Whether a link may be opened in this process: not in a child of one that had any.
bool link_allowed(void);

bool link_up(struct link *link);

// The last holder's release ends the link: what is under way is answered UNAVAILABLE first.
void link_hold(struct link *link);
void link_release(struct link *link); // takes NULL

// Sends bytes (copied) and answers them through `done` no later than the deadline. A failure here
// means that the exchange did not begin and `done` is not called.
enum status link_exchange(struct link *link, const void *data, size_t size, uint64_t deadline_ns,
                          link_done *done, void *arg, struct error *error) MUST_CHECK;

// CLOCK_MONOTONIC.
uint64_t link_now_ns(void);

#endif
