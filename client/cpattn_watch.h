// SPDX-License-Identifier: Apache-2.0
// libcpattn: following what happens at a daemon. The rules of <cpattn.h> hold here.
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
    CPATTN_EVENT_ADMITTED = 1, // a case was taken in
    CPATTN_EVENT_STARTED = 2,  // its ranks have it
    CPATTN_EVENT_FINISHED = 3, // it was answered, with a verdict or with a code
    CPATTN_EVENT_POOL = 4,     // a pool is in another state; running ones are "idle" here
    CPATTN_EVENT_DEVICE = 5,   // devices are in use again, or not
    CPATTN_EVENT_DAEMON = 6,   // the daemon drains
};

// "admitted", "started", "finished", "pool", "device", "daemon"; "?" for another number.
CPATTN_API const char *cpattn_event_kind_name(enum cpattn_event_kind kind);

// What has happened. What an event of its kind does not have is 0 or "". Of another user's case
// there are neither id nor case nor text, unless the watcher is an administrator.
struct cpattn_event {
    uint64_t number;  // of events since the daemon's start, from 1
    uint64_t lost;    // events before it, of any kind, that the daemon has forgotten
    uint64_t time_ns; // since the beginning of 1970, by the daemon's clock
    enum cpattn_event_kind kind;
    bool restarted;             // the first since the daemon was started again
    bool spare;                 // of a pool, as in cpattn_pool
    int32_t world_size;         // of cases and pools
    int32_t instance;           // of a pool, and of the one that a case is started on
    uint32_t generation;        // likewise
    const char *implementation; // a guest's name, or "" for the daemon's own
    const char *id;             // of a case, as in cpattn_open_request, like the next two
    const char *user;
    const char *case_text;
    enum cpattn_verdict verdict; // FINISHED; CPATTN_VERDICT_NONE:
    enum cpattn_status code;     // why there is none, CPATTN_CANCELLED for example
    uint64_t queue_ns, start_ns, run_ns, total_ns; // FINISHED, as in cpattn_result
    const char *state; // of a pool, as in cpattn_pool; of devices "enabled", "drained", "stuck"
    uint64_t devices;  // of a pool, or those meant: bit mask, as in cpattn_pool
    const char *text;  // FINISHED: a sentence; POOL: why it was lost, or is not up; DAEMON: what
};

// Follows what happens. A watch is for one thread at a time, and for as long as its client lives.
struct cpattn_watch;

// `kinds` is a bit mask of 1 << CPATTN_EVENT_*, 0: all. Begins with up to `recent` events (0..1024)
// that are past, as far as the daemon remembers them: it keeps 1024. Asks nothing of the daemon
// yet.
CPATTN_API enum cpattn_status cpattn_watch_create(struct cpattn_client *client, uint64_t kinds,
                                                  int recent, struct cpattn_watch **watch,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;

// The next event; it is valid until the next call on the watch. Events come some 50 ms late, and
// who is slow loses some (`lost`). OK with *event NULL: nothing has happened within timeout_ns (0:
// yet; UINT64_MAX: wait for ever). Anything but OK: the daemon could not be asked, or refuses to
// answer; it may be asked again, and what happened meanwhile is told then. RESOURCE_EXHAUSTED:
// too many watch.
CPATTN_API enum cpattn_status cpattn_watch_next(struct cpattn_watch *watch, uint64_t timeout_ns,
                                                const struct cpattn_event **event,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

CPATTN_API void cpattn_watch_destroy(struct cpattn_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
