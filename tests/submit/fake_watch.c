// SPDX-License-Identifier: Apache-2.0
// libcpattn's functions of watching without a daemon: the same events each time, then nothing more.
#include <stdio.h>
#include <stdlib.h>

#include "client/cpattn_watch.h"
#include "common/status.h"

#define AT(second) (UINT64_C(1700000000) + (second)) * 1000000000

struct cpattn_watch {
    int next;
    uint64_t kinds;
    struct cpattn_event event;
};

// Those of a case are of two users; of the other one's there is little.
static const struct fake_event {
    struct cpattn_event event;
    const char *id, *user, *case_text, *state, *text;
} events[] = {
    {{.number = 101,
      .lost = 7,
      .time_ns = AT(0),
      .kind = CPATTN_EVENT_POOL,
      .world_size = 2,
      .generation = 1,
      .devices = 3},
     "",
     "",
     "",
     "idle",
     ""},
    {{.number = 102, .time_ns = AT(1) + 5000000, .kind = CPATTN_EVENT_ADMITTED, .world_size = 2},
     "00112233445566778899aabbccddeeff",
     "uid=1000 pid=4242",
     "bf16 w2 s512",
     "",
     ""},
    {{.number = 103,
      .time_ns = AT(1) + 6000000,
      .kind = CPATTN_EVENT_STARTED,
      .world_size = 2,
      .generation = 1},
     "00112233445566778899aabbccddeeff",
     "uid=1000 pid=4242",
     "bf16 w2 s512",
     "",
     ""},
    {{.number = 104,
      .time_ns = AT(2),
      .kind = CPATTN_EVENT_FINISHED,
      .world_size = 2,
      .verdict = CPATTN_VERDICT_PASS,
      .run_ns = 30000000,
      .queue_ns = 10000000,
      .total_ns = 40000000},
     "00112233445566778899aabbccddeeff",
     "uid=1000 pid=4242",
     "bf16 w2 s512",
     "",
     ""},
    {{.number = 105,
      .time_ns = AT(3),
      .kind = CPATTN_EVENT_FINISHED,
      .world_size = 4,
      .code = CPATTN_ABORTED,
      .run_ns = 1000000,
      .total_ns = 1000000},
     "",
     "uid=1001",
     "",
     "",
     ""},
    {{.number = 106,
      .time_ns = AT(4),
      .kind = CPATTN_EVENT_FINISHED,
      .world_size = 2,
      .verdict = CPATTN_VERDICT_FAIL,
      .run_ns = 2000000,
      .total_ns = 2000000},
     "10112233445566778899aabbccddeeff",
     "uid=1000 pid=4243",
     "bf16 w2 s1024",
     "",
     ""},
    {{.number = 107,
      .time_ns = AT(5),
      .kind = CPATTN_EVENT_POOL,
      .world_size = 4,
      .generation = 6,
      .devices = 15},
     "",
     "",
     "",
     "down",
     "rank 3 exited with 1 while it started"},
    {{.number = 108, .time_ns = AT(6), .kind = CPATTN_EVENT_DEVICE, .devices = 5},
     "",
     "",
     "",
     "drained",
     ""},
    {{.number = 109, .time_ns = AT(7), .kind = CPATTN_EVENT_DAEMON}, "", "", "", "", "draining"},
};

#define EVENTS (int)(sizeof(events) / sizeof(events[0]))

const char *cpattn_status_name(enum cpattn_status status)
{
    return status_name((enum status)status);
}

const char *cpattn_verdict_name(enum cpattn_verdict verdict)
{
    static const char *const names[] = {"none", "pass", "fail", "unverified"};
    return names[verdict];
}

const char *cpattn_event_kind_name(enum cpattn_event_kind kind)
{
    static const char *const names[] = {"?",    "admitted", "started", "finished",
                                        "pool", "device",   "daemon"};
    return kind >= CPATTN_EVENT_ADMITTED && kind <= CPATTN_EVENT_DAEMON ? names[kind] : "?";
}

static bool is_asked_for(const struct cpattn_watch *w, int i)
{
    return w->kinds == 0 || w->kinds >> events[i].event.kind & 1;
}

enum cpattn_status cpattn_watch_create(struct cpattn_client *client, uint64_t kinds, int recent,
                                       struct cpattn_watch **watch, struct cpattn_error *error)
{
    (void)client;
    (void)error;
    struct cpattn_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return CPATTN_RESOURCE_EXHAUSTED;
    w->kinds = kinds;
    w->next = EVENTS;
    for (int left = recent; w->next > 0 && left > 0; w->next--)
        left -= is_asked_for(w, w->next - 1);
    *watch = w;
    return CPATTN_OK;
}

enum cpattn_status cpattn_watch_next(struct cpattn_watch *w, uint64_t timeout_ns,
                                     const struct cpattn_event **event, struct cpattn_error *error)
{
    while (w->next < EVENTS && !is_asked_for(w, w->next))
        w->next++;
    *event = NULL;
    if (w->next == EVENTS && timeout_ns > 0) {
        error->status = CPATTN_UNAVAILABLE;
        snprintf(error->text, sizeof(error->text), "the daemon went away");
        return CPATTN_UNAVAILABLE;
    }
    if (w->next == EVENTS)
        return CPATTN_OK;
    const struct fake_event *fake = &events[w->next++];
    w->event = fake->event;
    w->event.implementation = "";
    w->event.id = fake->id;
    w->event.user = fake->user;
    w->event.case_text = fake->case_text;
    w->event.state = fake->state;
    w->event.text = fake->text;
    *event = &w->event;
    return CPATTN_OK;
}

void cpattn_watch_destroy(struct cpattn_watch *watch)
{
    free(watch);
}
