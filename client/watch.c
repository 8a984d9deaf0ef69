// SPDX-License-Identifier: Apache-2.0
// Implements watches: requests that the daemon holds until there are events.
#include <stdlib.h>

#include "client/client.h"
#include "client/cpattn_watch.h"

// How long the daemon holds a request without events; then the next request is sent.
#define WAIT_NS UINT64_C(10000000000)

struct cpattn_watch {
    struct cpattn_client *client;
    struct wire_watch asked;
    struct wire_reply reply; // the daemon's last answer, owned
    int next;                // index of the next event in `reply`
    uint64_t lost;           // number of lost events that is not yet reported
    bool restarted;          // the daemon was restarted, which is not yet reported
    struct cpattn_event face;
};

const char *cpattn_event_kind_name(enum cpattn_event_kind kind)
{
    return event_kind_name((enum wire_event_kind)kind);
}

enum cpattn_status cpattn_watch_create(struct cpattn_client *client, uint64_t kinds, int recent,
                                       struct cpattn_watch **watch, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    enum status status = client_check_pid(client->pid, &inner);
    if (status == STATUS_OK && (recent < 0 || recent > EVENTS_KEPT))
        status = error_set(&inner, STATUS_INVALID_ARGUMENT, "recent is %d; accepted is 0 to %d",
                           recent, EVENTS_KEPT);
    struct cpattn_watch *created = status == STATUS_OK ? calloc(1, sizeof *created) : NULL;
    if (status == STATUS_OK && !created)
        status = error_set(&inner, STATUS_RESOURCE_EXHAUSTED, "memory is short for a watch");
    if (created) {
        created->client = client;
        created->asked = (struct wire_watch){.recent = recent, .kinds = kinds};
        *watch = created;
    }
    return client_status(status, &inner, error);
}

void cpattn_watch_destroy(struct cpattn_watch *watch)
{
    if (watch)
        wire_reply_fini(&watch->reply);
    free(watch);
}

static void face_write(struct cpattn_watch *w, const struct wire_event *e)
{
    w->face = (struct cpattn_event){
        .number = e->number,
        .lost = w->lost,
        .time_ns = e->time_ns,
        .kind = (enum cpattn_event_kind)e->kind,
        .restarted = w->restarted,
        .spare = e->spare,
        .world_size = e->world_size,
        .instance = e->instance,
        .generation = e->generation,
        .implementation = e->implementation,
        .id = e->id,
        .user = e->user,
        .case_text = e->case_text,
        .verdict = (enum cpattn_verdict)e->verdict,
        .code = (enum cpattn_status)e->code,
        .queue_ns = e->queue_ns,
        .start_ns = e->start_ns,
        .run_ns = e->run_ns,
        .total_ns = e->total_ns,
        .state = e->pool     ? pool_state_name(e->pool)
                 : e->device ? device_state_name(e->device)
                             : "",
        .devices = e->devices,
        .text = e->text,
    };
    w->lost = 0;
    w->restarted = false;
}

// Requests the events after the known ones.
static enum status ask(struct cpattn_watch *w, uint64_t wait_ns, struct error *error)
{
    struct wire_request request;
    struct rpc_call *call;
    struct wire_reply reply;
    enum status status = client_request_init(&request, METHOD_WATCH, error);
    request.watch = w->asked;
    request.watch.wait_ns = wait_ns;
    if (status == STATUS_OK)
        status = client_start(w->client->rpc, &request, wait_ns + w->client->grace_ns, RPC_FREE,
                              NULL, &call, error);
    if (status != STATUS_OK)
        return status;
    rpc_wait(call, UINT64_MAX);
    status = client_answer(call, &request.id, METHOD_WATCH, &reply, error);
    rpc_drop(call);
    if (status != STATUS_OK) {
        wire_reply_fini(&reply);
        return status;
    }
    wire_reply_fini(&w->reply);
    w->reply = reply;
    w->next = 0;
    w->lost += reply.events.lost;
    w->restarted |= w->asked.stream != 0 && w->asked.stream != reply.events.stream;
    w->asked.stream = reply.events.stream;
    w->asked.after = reply.events.last;
    return STATUS_OK;
}

static enum status next(struct cpattn_watch *w, uint64_t timeout_ns,
                        const struct cpattn_event **event, struct error *error)
{
    uint64_t began_ns = link_now_ns(), gone_ns = 0;
    enum status status = client_check_pid(w->client->pid, error);
    while (status == STATUS_OK && w->next == w->reply.events.count) {
        uint64_t left_ns = timeout_ns - gone_ns;
        status = ask(w, left_ns < WAIT_NS ? left_ns : WAIT_NS, error);
        gone_ns = link_now_ns() - began_ns;
        if (gone_ns >= timeout_ns)
            break;
    }
    if (status != STATUS_OK)
        return status;
    *event = NULL;
    if (w->next < w->reply.events.count) {
        face_write(w, &w->reply.events.list[w->next++]);
        *event = &w->face;
    }
    return STATUS_OK;
}

enum cpattn_status cpattn_watch_next(struct cpattn_watch *watch, uint64_t timeout_ns,
                                     const struct cpattn_event **event, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    return client_status(next(watch, timeout_ns, event, &inner), &inner, error);
}
