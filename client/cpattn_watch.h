// SPDX-License-Identifier: Apache-2.0
// libcpattn: events at a daemon, and its hosts. The rules of <cpattn.h> hold here, too.
//
//     struct cpattn_watch *watch;
//     const struct cpattn_event *event;
//     if (cpattn_watch_create(client, 1 << CPATTN_EVENT_FINISHED, 0, &watch, &error) != CPATTN_OK)
//     ... while (cpattn_watch_next(watch, UINT64_MAX, &event, &error) == CPATTN_OK)
//         printf("%s: %s\n", event->case_text, cpattn_verdict_name(event->verdict));
//     cpattn_watch_destroy(watch);
#ifndef CPATTN_WATCH_H
#define CPATTN_WATCH_H

#include <cpattn.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cpattn_event_kind {
    CPATTN_EVENT_ADMITTED = 1, // a case was admitted
    CPATTN_EVENT_STARTED = 2,  // the ranks received the case
    CPATTN_EVENT_FINISHED = 3, // the case was answered with a verdict or a status
    CPATTN_EVENT_POOL = 4,     // a pool changed its state; a running pool counts as "idle" here
    CPATTN_EVENT_DEVICE = 5,   // devices were taken out of use, or are used again
    CPATTN_EVENT_DAEMON = 6,   // the daemon drains; one of its hosts was lost, or is back
};

// "admitted", "started", "finished", "pool", "device", "daemon"; "?" for an unlisted number.
CPATTN_API const char *cpattn_event_kind_name(enum cpattn_event_kind kind);

// An event. Members that its kind does not have are 0 or "". id, case_text and text of another
// user's case are "", unless the watcher is an administrator.
struct cpattn_event {
    uint64_t number;  // of the event since the daemon's start, from 1
    uint64_t lost;    // number of lost events before it, of any kind
    uint64_t time_ns; // since 1970-01-01 UTC, by the daemon's clock
    enum cpattn_event_kind kind;
    bool restarted;             // first event after a restart of the daemon
    bool spare;                 // of a pool, as in cpattn_pool
    int32_t world_size;         // of cases and pools
    int32_t instance;           // of the pool, or of the pool that runs the case
    uint32_t generation;        // of the same pool
    const char *implementation; // a guest's name, or "" for the daemon's own
    const char *id;             // of a case, as in cpattn_open_request, like the next two
    const char *user;
    const char *case_text;
    enum cpattn_verdict verdict;                   // FINISHED; with CPATTN_VERDICT_NONE
    enum cpattn_status code;                       // the reason, as CPATTN_CANCELLED
    uint64_t queue_ns, start_ns, run_ns, total_ns; // FINISHED, as in cpattn_result
    const char *state; // of a pool, as in cpattn_pool; of devices "enabled", "drained", "stuck"
    uint64_t devices;  // of the pool or of the event: bit mask as in cpattn_pool
    const char *text;  // FINISHED: a sentence; POOL: why it is down; DAEMON: what happened
};

// A stream of events. Use it from one thread at a time, and destroy it before its client.
struct cpattn_watch;

// Creates a watch; sends nothing yet. `kinds` is a bit mask of 1 << CPATTN_EVENT_*; 0: all. The
// watch begins with up to `recent` past events (0..1024); the daemon keeps the last 1024.
CPATTN_API enum cpattn_status cpattn_watch_create(struct cpattn_client *client, uint64_t kinds,
                                                  int recent, struct cpattn_watch **watch,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;

// Returns the next event, which is valid until the next call on the watch. Events arrive about 50
// ms late, and a slow watcher loses some (`lost`). OK with *event NULL: no event within timeout_ns
// (0: do not wait; UINT64_MAX: no limit). Other statuses: the daemon cannot be asked or refuses.
// The caller may try again; events in between arrive then. RESOURCE_EXHAUSTED: too many watchers.
CPATTN_API enum cpattn_status cpattn_watch_next(struct cpattn_watch *watch, uint64_t timeout_ns,
                                                const struct cpattn_event **event,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

CPATTN_API void cpattn_watch_destroy(struct cpattn_watch *watch);

// A host with devices that pools share.
struct cpattn_host {
    const char *name;
    const char *state; // "up"; "lost": its agent is not connected, and no case runs there
    int32_t devices;
    uint64_t devices_out; // bit mask: drained by an administrator
    // Bit mask: out of use because killed ranks on them do not end. 0 from daemons of older
    // versions.
    uint64_t devices_stuck;
};

// The index-th host; NULL after the last.
CPATTN_API const struct cpattn_host *
cpattn_daemon_status_host(const struct cpattn_daemon_status *status, int index);

// cpattn_order() for a device of a host: `host` is its index in cpattn_daemon_status_host(), 0 for
// the daemon's own. Devices of other hosts are numbered from 0.
CPATTN_API enum cpattn_status cpattn_order_on(struct cpattn_client *client, enum cpattn_order order,
                                              int host, int device, uint64_t timeout_ns,
                                              uint64_t *count,
                                              struct cpattn_error *error) CPATTN_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
