// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/watchers.h"

#include <stdlib.h>

#include "common/clock.h"
#include "daemon/service/alarm.h"
#include "daemon/service/reply.h"

// Delay from an event to the replies, which include all events until then.
#define TELL_NS (50 * NS_PER_MS)

struct watcher {
    struct exchange *exchange; // NULL: free
    struct request_id id;
    struct events_reader reader;
    uint64_t after, until_ns; // number of the last event it knows; end of its waiting time
};

struct watchers {
    const struct events *events;
    struct alarm alarm;
    uint64_t told;    // number of the last event that tell() has handled
    uint64_t tell_ns; // time of the next reply; UINT64_MAX: no new events
    int count;
    bool closed;
    struct watcher list[WATCHERS_MAX];
    struct wire_event room[EVENTS_REPLY_MAX];
};

static void answer(struct exchange *exchange, const struct request_id *id,
                   const struct wire_events *events)
{
    struct wire_reply reply = {.id = *id, .method = METHOD_WATCH, .events = *events};
    reply_send(exchange, &reply);
}

static void watcher_end(struct watchers *w, struct watcher *watcher,
                        const struct wire_events *events)
{
    answer(watcher->exchange, &watcher->id, events);
    watcher->exchange = NULL;
    w->count--;
}

// Answers the watchers that have new events, and those whose waiting time is over at `now_ns`.
static void tell(struct watchers *w, uint64_t now_ns)
{
    for (int i = 0; i < WATCHERS_MAX && w->count > 0; i++) {
        struct watcher *watcher = &w->list[i];
        struct wire_events events;
        if (!watcher->exchange)
            continue;
        events_read(w->events, &watcher->reader, watcher->after, w->room, &events);
        // If events are lost, `after` stays: the loss is reported together with the next event.
        if (events.lost == 0)
            watcher->after = events.last;
        if (events.count > 0 || now_ns >= watcher->until_ns)
            watcher_end(w, watcher, &events);
    }
    w->told = events_last(w->events);
    w->tell_ns = UINT64_MAX;
}

// Sets the alarm for the next reply: new events, or the end of a watcher's time.
static void alarm_arm(struct watchers *w)
{
    uint64_t at_ns = w->count > 0 ? w->tell_ns : UINT64_MAX;
    for (int i = 0; i < WATCHERS_MAX; i++)
        if (w->list[i].exchange && w->list[i].until_ns < at_ns)
            at_ns = w->list[i].until_ns;
    alarm_set(&w->alarm, at_ns);
}

static void on_alarm(void *context)
{
    struct watchers *w = context;
    tell(w, clock_now_ns());
    alarm_arm(w);
}

void watchers_notice(struct watchers *w)
{
    if (w->count == 0 || w->told == events_last(w->events) || w->tell_ns != UINT64_MAX)
        return;
    w->tell_ns = clock_now_ns() + TELL_NS;
    alarm_arm(w);
}

void watchers_close(struct watchers *w)
{
    w->closed = true;
    tell(w, UINT64_MAX);
    alarm_arm(w);
}

static int waiting_of(const struct watchers *w, const struct peer *peer)
{
    int count = 0;
    for (int i = 0; i < WATCHERS_MAX; i++)
        count += w->list[i].exchange && peer_key(&w->list[i].reader.peer) == peer_key(peer);
    return count;
}

static enum status room_check(const struct watchers *w, const struct peer *peer,
                              struct error *error)
{
    if (waiting_of(w, peer) >= WATCHERS_USER)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%d watchers of this user wait, which is one user's share", WATCHERS_USER);
    if (w->count >= WATCHERS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%d watchers wait, which is the limit",
                         WATCHERS_MAX);
    return STATUS_OK;
}

static void keep(struct watchers *w, const struct watcher *watcher)
{
    struct watcher *place = w->list;
    while (place->exchange)
        place++;
    *place = *watcher;
    w->count++;
    alarm_arm(w);
}

enum status watchers_take(struct watchers *w, struct exchange *exchange,
                          const struct wire_request *request, const struct peer *peer, bool rules,
                          struct error *error)
{
    struct wire_events events;
    const struct wire_watch *watch = &request->watch;
    struct watcher watcher = {.exchange = exchange,
                              .id = request->id,
                              .reader = {.peer = *peer, .rules = rules, .watch = *watch},
                              .until_ns = clock_now_ns() + watch->wait_ns};
    watcher.after = events_begin(w->events, &watcher.reader);
    events_read(w->events, &watcher.reader, watcher.after, w->room, &events);
    if (events.count > 0 || watch->wait_ns == 0 || w->closed) {
        answer(exchange, &request->id, &events);
        return STATUS_OK;
    }
    enum status status = room_check(w, peer, error);
    if (status == STATUS_OK)
        keep(w, &watcher);
    return status;
}

void watchers_client_gone(struct watchers *w, uint32_t client)
{
    for (int i = 0; i < WATCHERS_MAX; i++) {
        if (!w->list[i].exchange || w->list[i].reader.peer.client != client)
            continue;
        server_drop(w->list[i].exchange);
        w->list[i].exchange = NULL;
        w->count--;
    }
}

enum status watchers_create(struct ev_loop *loop, const struct events *events,
                            struct watchers **watchers, struct error *error)
{
    struct watchers *w = calloc(1, sizeof(*w));
    if (!w)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for watchers");
    w->events = events;
    w->tell_ns = UINT64_MAX;
    alarm_init(&w->alarm, loop, on_alarm, w);
    *watchers = w;
    return STATUS_OK;
}

void watchers_destroy(struct watchers *w)
{
    if (w)
        alarm_fini(&w->alarm);
    free(w);
}
