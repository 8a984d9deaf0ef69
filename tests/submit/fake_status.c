// SPDX-License-Identifier: Apache-2.0
// libcpattn's functions for description, status and events, without a daemon. Devices, pools, cases
// and events are constant.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cpattn_watch.h"
#include "common/status.h"
#include "tests/submit/fake_client.h"

#define AT(second) (UINT64_C(1700000000) + (second)) * 1000000000

struct cpattn_watch {
    int next;
    uint64_t kinds;
    bool lost; // the daemon went away
    struct cpattn_event event;
};

// Cases of two users. Those of uid 1001 have no id and no text, as a daemon hides them from others.
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
    if (w->next == EVENTS && timeout_ns > 0 && w->lost)
        return fake_error(error, CPATTN_PERMISSION_DENIED, "the next daemon serves others");
    if (w->next == EVENTS && timeout_ns > 0) {
        w->lost = true;
        return fake_error(error, CPATTN_UNAVAILABLE, "the daemon went away");
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

// ---- the parts of a status ----------------------------------------------------------------------

static const struct cpattn_pool fake_pools[] = {
    {2, 0, "idle", 1, 12, 0, "", 0x9, true, "", 1, "copies"},
    {4, 0, "down", 6, 0, 5, "rank 3 exited with 1 while it started", 0xf, false, "torch", 3, ""},
};

const struct cpattn_pool *cpattn_daemon_status_pool(const struct cpattn_daemon_status *status,
                                                    int index)
{
    return index >= 0 && index < status->pool_count ? &fake_pools[index] : NULL;
}

static const struct cpattn_host fake_hosts[] = {{"node0", "up", 8, 0, 0},
                                                {"node1", "lost", 8, 5, 2}};

const struct cpattn_host *cpattn_daemon_status_host(const struct cpattn_daemon_status *status,
                                                    int index)
{
    return index >= 0 && index < status->host_count ? &fake_hosts[index] : NULL;
}

static const struct cpattn_rank_place fake_places[] = {{"forward", 3}, {"backward", 1}};
static const struct cpattn_open_request fake_requests[] = {
    {"00112233445566778899aabbccddeeff", "uid=1000 pid=4242", "", "bf16 w2 s512", "forward", 3, 2,
     true, 5000000000, 4000000000, 2, fake_places},
    {"", "uid=1001", "torch", "", "", 0, 4, false, 1000000000, 0, 0, NULL},
};

// The daemon at the socket "many" has one case of user 0 with 64 ranks.
static const struct cpattn_open_request *many_ranks(void)
{
    static struct cpattn_rank_place places[64];
    static const struct cpattn_open_request many = {"00112233445566778899aabbccddeeff",
                                                    "uid=0 pid=4242",
                                                    "",
                                                    "bf16 w64 s65536",
                                                    "forward",
                                                    17,
                                                    64,
                                                    true,
                                                    5000000000,
                                                    4000000000,
                                                    64,
                                                    places};
    static const char *const phases[] = {"idle",     "plan",      "inputs", "forward",
                                         "backward", "reference", "compare"};
    for (int rank = 0; rank < 64; rank++)
        places[rank] = (struct cpattn_rank_place){phases[rank / 8 % 7], 17};
    return &many;
}

const struct cpattn_open_request *
cpattn_daemon_status_request(const struct cpattn_daemon_status *status, int index)
{
    if (status->request_count == 1)
        return index == 0 ? many_ranks() : NULL;
    return index >= 0 && index < status->request_count ? &fake_requests[index] : NULL;
}

void cpattn_daemon_status_destroy(struct cpattn_daemon_status *status)
{
    free(status);
}

// ---- description and status ---------------------------------------------------------------------

static uint64_t fake_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

uint64_t fake_timeout_max_ns(void)
{
    return fake_number("FAKE_TIMEOUT_MAX_S", 86400) * 1000000000;
}

// Fails if the time limit is shorter than FAKE_DESCRIBE_MS, without a wait. After FAKE_DESCRIBES
// answers every call fails.
enum cpattn_status cpattn_describe(struct cpattn_client *client, uint64_t timeout_ns,
                                   struct cpattn_description **description,
                                   struct cpattn_error *error)
{
    static uint64_t answers;
    (void)client;
    if (timeout_ns < fake_number("FAKE_DESCRIBE_MS", 0) * 1000000 ||
        answers++ >= fake_number("FAKE_DESCRIBES", UINT64_MAX))
        return fake_error(error, CPATTN_DEADLINE_EXCEEDED, "no answer in time");
    *description = malloc(sizeof(**description));
    if (!*description)
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "not enough memory");
    **description = (struct cpattn_description){.version = "0.0.0",
                                                .backend = "cuda",
                                                .gpu_count = 2,
                                                .devices = 2,
                                                .world_size_max = 8,
                                                .memory_bytes_max = INT64_C(3) << 30,
                                                .timeout_default_ns = UINT64_C(90000000000),
                                                .timeout_max_ns = fake_timeout_max_ns(),
                                                .queue_max = 4096};
    return CPATTN_OK;
}

const struct cpattn_implementation *
cpattn_description_guest(const struct cpattn_description *description, int i)
{
    (void)description;
    (void)i;
    return NULL;
}

const struct cpattn_gpu *cpattn_description_gpu(const struct cpattn_description *description, int i)
{
    static const struct cpattn_gpu gpus[] = {{0, "sm_90", INT64_C(139) << 30, "NVIDIA H200"},
                                             {3, "sm_80", INT64_C(40) << 30, "NVIDIA A100"}};
    return i >= 0 && i < description->gpu_count ? &gpus[i] : NULL;
}

void cpattn_description_destroy(struct cpattn_description *description)
{
    free(description);
}

enum cpattn_status cpattn_query_status(struct cpattn_client *client, uint64_t timeout_ns,
                                       struct cpattn_daemon_status **status,
                                       struct cpattn_error *error)
{
    (void)timeout_ns;
    *status = malloc(sizeof(**status));
    if (!*status)
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "not enough memory");
    **status = (struct cpattn_daemon_status){.uptime_ns = UINT64_C(7265000000000),
                                             .queued = 3,
                                             .running = 1,
                                             .admitted = 20,
                                             .passed = 12,
                                             .failed = 1,
                                             .unverified = 2,
                                             .devices_out = 0x5,
                                             .loop_lag_max_ns = 12000000,
                                             .loop_lag_p99_ns = 400000,
                                             .errors = 1,
                                             .refused = 2,
                                             .pool_count = 2,
                                             .request_count = 2};
    if (strcmp(cpattn_client_socket(client), "many") == 0) {
        (*status)->request_count = 1;
        (*status)->host_count = 2;
    }
    return CPATTN_OK;
}
