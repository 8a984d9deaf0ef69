// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/tasks.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/list.h"

// A client that waits for an answer.
struct waiter {
    struct list all, same; // on tasks.all and its slot's list; unused: `same` on tasks.free
    struct exchange *exchange;
    uint32_t client;
    uid_t uid;
    int slot;
};

// Upper bound of the waiting clients of one user, in addition to the first client of each request.
#define ATTACHED_USER_MAX (ATTACHED_MAX / 4)

struct tasks {
    int slots, attached; // attached: waiters in addition to the first of each slot
    struct task *tasks;  // [slots]; large, so only entries of used slots are accessed
    struct list *same;   // [slots], list of the waiters of each slot
    bool *used;          // [slots]
    struct waiter *waiters;
    struct list all, free;
    int *abandoned; // [slots], result of tasks_client_gone()
};

enum status tasks_create(int slots, struct tasks **tasks, struct error *error)
{
    struct tasks *t = calloc(1, sizeof(*t));
    size_t count = (size_t)slots;
    if (t) {
        t->slots = slots;
        t->tasks = calloc(count, sizeof(*t->tasks));
        t->same = calloc(count, sizeof(*t->same));
        t->used = calloc(count, sizeof(*t->used));
        t->waiters = calloc(count + ATTACHED_MAX, sizeof(*t->waiters));
        t->abandoned = calloc(count, sizeof(*t->abandoned));
    }
    if (!t || !t->tasks || !t->same || !t->used || !t->waiters || !t->abandoned) {
        tasks_destroy(t);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d requests", slots);
    }
    list_init(&t->all);
    list_init(&t->free);
    for (int i = 0; i < slots; i++)
        list_init(&t->same[i]);
    for (int i = 0; i < slots + ATTACHED_MAX; i++) {
        list_init(&t->waiters[i].all);
        list_init(&t->waiters[i].same);
        list_push_back(&t->free, &t->waiters[i].same);
    }
    *tasks = t;
    return STATUS_OK;
}

void tasks_destroy(struct tasks *t)
{
    if (!t)
        return;
    free(t->tasks);
    free(t->same);
    free(t->used);
    free(t->waiters);
    free(t->abandoned);
    free(t);
}

static void waiter_add(struct tasks *t, int slot, struct exchange *exchange,
                       const struct peer *peer)
{
    struct waiter *waiter = LIST_ENTRY(list_pop_front(&t->free), struct waiter, same);
    waiter->uid = peer->uid;
    t->attached += !list_empty(&t->same[slot]);
    waiter->exchange = exchange;
    waiter->client = peer->client;
    waiter->slot = slot;
    list_push_back(&t->all, &waiter->all);
    list_push_back(&t->same[slot], &waiter->same);
}

static void waiter_remove(struct tasks *t, struct waiter *waiter)
{
    list_remove(&waiter->all);
    list_remove(&waiter->same);
    t->attached -= !list_empty(&t->same[waiter->slot]);
    list_push_front(&t->free, &waiter->same);
}

void tasks_begin(struct tasks *t, int slot, const struct wire_request *request,
                 const struct job_spec *spec, uint64_t timeout_ns, struct exchange *exchange,
                 const struct peer *peer)
{
    struct task *task = &t->tasks[slot];
    task->id = request->id;
    task->peer = *peer;
    task->admitted_ns = clock_now_ns();
    task->run_ns = 0;
    task->pool = 0;
    task->generation = 0;
    task->timeout_ns = timeout_ns;
    task->run_timeout_ns = request->run_timeout_ns;
    task->spec = *spec;
    task->attends = request->attends;
    task->places = request->places;
    task->segments = (struct segments){.given_fd = -1, .wanted_fd = -1};
    t->used[slot] = true;
    waiter_add(t, slot, exchange, peer);
}

void tasks_run(struct tasks *t, int slot, int pool, uint32_t generation)
{
    struct task *task = &t->tasks[slot];
    task->run_ns = clock_now_ns();
    task->pool = pool;
    task->generation = generation;
}

void tasks_set_segments(struct tasks *t, int slot, struct segments segments)
{
    t->tasks[slot].segments = segments;
}

static int attached_of(const struct tasks *t, uid_t uid)
{
    int count = 0;
    LIST_FOREACH (node, &t->all) {
        const struct waiter *waiter = LIST_ENTRY(node, struct waiter, all);
        bool first = list_first(&t->same[waiter->slot]) == &waiter->same;
        count += !first && waiter->uid == uid;
    }
    return count;
}

enum status tasks_attach(struct tasks *t, int slot, struct exchange *exchange,
                         const struct peer *peer, struct error *error)
{
    if (attached_of(t, peer->uid) >= ATTACHED_USER_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "this request is already queued or running, and %d repeated "
                         "requests of this user wait for their answers, which is one user's "
                         "share",
                         ATTACHED_USER_MAX);
    if (t->attached == ATTACHED_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "this request is already queued or running, and %d repeated "
                         "requests wait for their answers, which is the limit",
                         ATTACHED_MAX);
    waiter_add(t, slot, exchange, peer);
    return STATUS_OK;
}

const struct task *tasks_get(const struct tasks *t, int slot)
{
    return t->used[slot] ? &t->tasks[slot] : NULL;
}

void tasks_answer(struct tasks *t, int slot, const void *data, size_t size)
{
    for (struct list *node; (node = list_first(&t->same[slot]));) {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter, same);
        struct exchange *exchange = waiter->exchange;
        waiter_remove(t, waiter);
        if (data)
            server_reply(exchange, data, size);
        else
            server_drop(exchange);
    }
    t->used[slot] = false;
}

int tasks_client_gone(struct tasks *t, uint32_t client, const int **slots)
{
    int count = 0;
    LIST_FOREACH (node, &t->all) {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter, all);
        if (waiter->client != client)
            continue;
        int slot = waiter->slot;
        server_drop(waiter->exchange);
        waiter_remove(t, waiter);
        if (list_empty(&t->same[slot]))
            t->abandoned[count++] = slot;
    }
    *slots = t->abandoned;
    return count;
}
