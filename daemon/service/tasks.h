// SPDX-License-Identifier: Apache-2.0
// Tasks: the case of each slot of the pool core, and the clients that wait for its answer. A
// request that is repeated while it is queued or running has several waiting clients. All memory is
// allocated in advance.
#ifndef CPATTN_DAEMON_SERVICE_TASKS_H
#define CPATTN_DAEMON_SERVICE_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/deposits.h"
#include "daemon/net/peer.h"
#include "daemon/net/server.h"
#include "proto/wire.h"

struct task {
    struct request_id id;
    struct peer peer;             // client of the first submission
    uint64_t admitted_ns, run_ns; // times of admission and of its run; run_ns 0: it is queued
    int pool;                     // the pool that runs it
    uint32_t generation;
    uint64_t timeout_ns, run_timeout_ns;
    struct job_spec spec;
    bool attends; // it computes with a client's tensors
    struct whole_places places;
    struct segments segments; // memory of these tensors; released by the service
};

struct tasks;

// Creates tasks for the slots 0..slots-1.
enum status tasks_create(int slots, struct tasks **tasks, struct error *error) MUST_CHECK;

// Frees the tasks; open exchanges remain with the server. Accepts NULL.
void tasks_destroy(struct tasks *t);

// Fills a free slot with a request whose exchange waits for the answer.
void tasks_begin(struct tasks *t, int slot, const struct wire_request *request,
                 const struct job_spec *spec, uint64_t timeout_ns, struct exchange *exchange,
                 const struct peer *peer);

// Marks the task of a slot as running.
void tasks_run(struct tasks *t, int slot, int pool, uint32_t generation);

// Sets the shared memory of a slot's tensors.
void tasks_set_segments(struct tasks *t, int slot, struct segments segments);

// Adds a waiting client. RESOURCE_EXHAUSTED: too many wait, of this user or in total; the client is
// not added.
enum status tasks_attach(struct tasks *t, int slot, struct exchange *exchange,
                         const struct peer *peer, struct error *error) MUST_CHECK;

// The task of a slot; NULL if it is free.
const struct task *tasks_get(const struct tasks *t, int slot);

// Sends the encoded reply to all waiting clients and frees the slot. NULL `data`: drops their
// exchanges.
void tasks_answer(struct tasks *t, int slot, const void *data, size_t size);

// A client is gone: drops its exchanges. Returns the number of slots that have no waiting client
// any more; *slots lists them and is valid until the next call.
int tasks_client_gone(struct tasks *t, uint32_t client, const int **slots);

#endif
