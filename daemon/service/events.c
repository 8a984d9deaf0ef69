// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/clock.h"

struct record {
    struct wire_event event; // without `user`, which is filled in for each reader
    struct peer owner;       // client of the case; zeroed for other events
};

struct events {
    uint64_t stream, last;              // random id of this daemon's events; number of the last one
    struct record records[EVENTS_KEPT]; // event n is at n % EVENTS_KEPT
    struct wire_pool pools[POOLS_MAX];  // at the last comparison
    int pool_count;
    uint64_t drained, stuck; // devices of the first host, at the last comparison
    uint64_t hosts;          // connected hosts, at the last comparison
    bool draining;
};

enum status events_create(struct events **events, struct error *error)
{
    struct events *e = calloc(1, sizeof(*e));
    if (!e)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for events");
    while (e->stream == 0)
        if (getrandom(&e->stream, sizeof(e->stream), 0) != (ssize_t)sizeof(e->stream))
            e->stream = clock_now_ns();
    *events = e;
    return STATUS_OK;
}

void events_destroy(struct events *e)
{
    free(e);
}

uint64_t events_last(const struct events *e)
{
    return e->last;
}

// ---- recording events --------------------------------------------------------------------------

static struct record *record_add(struct events *e, enum wire_event_kind kind)
{
    struct timespec now;
    struct record *record = &e->records[++e->last % EVENTS_KEPT];
    clock_gettime(CLOCK_REALTIME, &now);
    memset(record, 0, sizeof(*record));
    record->event.kind = kind;
    record->event.number = e->last;
    record->event.time_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    return record;
}

static struct wire_event *case_add(struct events *e, enum wire_event_kind kind,
                                   const struct task *task)
{
    struct record *record = record_add(e, kind);
    struct wire_event *event = &record->event;
    struct job_needs needs = job_spec_needs(&task->spec);
    record->owner = task->peer;
    event->world_size = needs.world_size;
    snprintf(event->implementation, sizeof(event->implementation), "%s", needs.implementation);
    request_id_text(&task->id, event->id);
    job_spec_describe(&task->spec, event->case_text, sizeof(event->case_text));
    return event;
}

void events_admitted(struct events *e, const struct task *task)
{
    case_add(e, EVENT_ADMITTED, task);
}

void events_started(struct events *e, const struct task *task, const struct action *run)
{
    struct wire_event *event = case_add(e, EVENT_STARTED, task);
    event->instance = run->instance;
    event->generation = run->generation;
}

void events_finished(struct events *e, const struct task *task, const struct action *answer,
                     const struct wire_reply *reply)
{
    struct wire_event *event = case_add(e, EVENT_FINISHED, task);
    event->code = reply->status;
    if (reply->status == STATUS_OK)
        event->verdict = reply->result.verdict;
    event->queue_ns = answer->queue_ns;
    event->start_ns = answer->start_ns;
    event->run_ns = answer->run_ns;
    event->total_ns = answer->total_ns;
    memcpy(event->text, reply->message, sizeof(event->text));
}

// ---- pools and devices -------------------------------------------------------------------------

static bool pools_same(const struct wire_pool *a, const struct wire_pool *b)
{
    return a->guest == b->guest && a->world_size == b->world_size && a->nodes == b->nodes &&
           a->instance == b->instance && a->spare == b->spare;
}

static const struct wire_pool *pool_before(const struct events *e, const struct wire_pool *pool)
{
    for (int i = 0; i < e->pool_count; i++)
        if (pools_same(&e->pools[i], pool))
            return &e->pools[i];
    return NULL;
}

// The state of a pool for watchers, which do not distinguish idle and running pools.
static enum pool_state state_of(const struct wire_pool *pool)
{
    return pool->state == POOL_RUNNING ? POOL_IDLE : pool->state;
}

static void pool_compare(struct events *e, const struct wire_pool *pool)
{
    const struct wire_pool *before = pool_before(e, pool);
    uint64_t deaths = before ? before->deaths : 0;
    if (before && state_of(before) == state_of(pool) && before->generation == pool->generation)
        return;
    struct wire_event *event = &record_add(e, EVENT_POOL)->event;
    event->world_size = pool->world_size;
    event->instance = pool->instance;
    event->generation = pool->generation;
    event->pool = state_of(pool);
    event->devices = pool->devices;
    event->spare = pool->spare;
    memcpy(event->implementation, pool->implementation, sizeof(event->implementation));
    if (pool->deaths > deaths || pool->state == POOL_BACKOFF || pool->state == POOL_DOWN ||
        pool->state == POOL_STUCK)
        memcpy(event->text, pool->last_failure, sizeof(event->text));
}

static void devices_tell(struct events *e, uint64_t devices, enum device_state state)
{
    if (devices == 0)
        return;
    struct wire_event *event = &record_add(e, EVENT_DEVICE)->event;
    event->device = state;
    event->devices = devices;
}

// Adds an event for each other host that was lost or connected. At the start none is connected.
static void hosts_compare(struct events *e, const struct wire_status *status)
{
    for (int host = 1; host < status->host_count; host++) {
        const struct wire_host *h = &status->hosts[host];
        uint64_t bit = UINT64_C(1) << host;
        if (h->lost != !(e->hosts & bit))
            snprintf(record_add(e, EVENT_DAEMON)->event.text, ERROR_TEXT_MAX, "host %s is %s",
                     h->name, h->lost ? "lost" : "there");
        e->hosts = h->lost ? e->hosts & ~bit : e->hosts | bit;
    }
}

void events_compare(struct events *e, const struct wire_status *status)
{
    uint64_t stuck = status->devices_stuck, drained = status->devices_out & ~stuck;
    for (int i = 0; i < status->pool_count; i++)
        pool_compare(e, &status->pools[i]);
    hosts_compare(e, status);
    devices_tell(e, drained & ~e->drained, DEVICE_DRAINED);
    devices_tell(e, stuck & ~e->stuck, DEVICE_STUCK);
    devices_tell(e, (e->drained | e->stuck) & ~(drained | stuck), DEVICE_ENABLED);
    if (status->draining && !e->draining)
        snprintf(record_add(e, EVENT_DAEMON)->event.text, ERROR_TEXT_MAX, "draining");
    e->draining = status->draining;
    e->drained = drained;
    e->stuck = stuck;
    e->pool_count = status->pool_count;
    memcpy(e->pools, status->pools, (size_t)status->pool_count * sizeof(e->pools[0]));
}

// ---- reading -----------------------------------------------------------------------------------

// Number of the last event that was overwritten; 0: none.
static uint64_t forgotten(const struct events *e)
{
    return e->last > EVENTS_KEPT ? e->last - EVENTS_KEPT : 0;
}

static bool is_asked_for(const struct wire_watch *watch, const struct wire_event *event)
{
    return watch->kinds == 0 || watch->kinds >> event->kind & 1;
}

uint64_t events_begin(const struct events *e, const struct events_reader *reader)
{
    const struct wire_watch *watch = &reader->watch;
    uint64_t after = e->last;
    if (watch->stream == e->stream)
        return watch->after < e->last ? watch->after : e->last;
    if (watch->stream != 0)
        return 0; // the daemon was restarted: all events are new
    for (int left = watch->recent; left > 0 && after > forgotten(e); after--)
        left -= is_asked_for(watch, &e->records[after % EVENTS_KEPT].event);
    return after;
}

static void event_copy(const struct events_reader *reader, const struct record *record,
                       struct wire_event *event)
{
    const struct peer *owner = &record->owner;
    bool mine = peer_is_known(&reader->peer) && reader->peer.uid == owner->uid;
    _Static_assert(sizeof(event->user) >= PEER_TEXT_MAX, "a user has room");
    *event = record->event;
    if (!event->id[0])
        return; // not about a case
    if (mine || reader->rules) {
        peer_describe(owner, event->user);
        return;
    }
    peer_describe_user(owner, event->user);
    event->id[0] = event->case_text[0] = event->text[0] = '\0';
}

void events_read(const struct events *e, const struct events_reader *reader, uint64_t after,
                 struct wire_event *list, struct wire_events *events)
{
    uint64_t first = after > forgotten(e) ? after : forgotten(e);
    *events = (struct wire_events){.stream = e->stream, .last = first, .lost = first - after};
    events->list = list;
    while (events->last < e->last && events->count < EVENTS_REPLY_MAX) {
        const struct record *record = &e->records[++events->last % EVENTS_KEPT];
        if (is_asked_for(&reader->watch, &record->event))
            event_copy(reader, record, &list[events->count++]);
    }
}
