// SPDX-License-Identifier: Apache-2.0
// The request ids of the jobs that live and of the last ANSWERED_IDS_MAX that were answered, found
// by hash, so that no request runs twice. Nothing is allocated after init.
#ifndef CPATTN_DAEMON_CORE_IDS_H
#define CPATTN_DAEMON_CORE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "proto/wire.h"

// What ids_find() says of an id that is not the one of a living job.
#define IDS_UNKNOWN  (-1)
#define IDS_ANSWERED (-2)

struct ids_entry {
    struct request_id id;
    int next;  // in the chain of its bucket: 1 + index; 0: the end
    bool used; // it is in a chain
};

struct ids {
    // The first `slots` are those of living jobs, by slot; the rest is a ring of answered ones.
    struct ids_entry *entries;
    int *buckets; // 1 + index of the first; 0: empty
    int slots;
    int oldest; // of the ring: the place that the next answered id takes
};

// Slots are 0..slots-1. False when memory is short; ids_fini() takes that state and a zeroed one.
bool ids_init(struct ids *ids, int slots);
void ids_fini(struct ids *ids);

// The slot of the living job with this id, or IDS_ANSWERED, or IDS_UNKNOWN.
int ids_find(const struct ids *ids, const struct request_id *id);
// The id must be unknown and the slot free.
void ids_add(struct ids *ids, int slot, const struct request_id *id);
// The job of the slot has been answered: its id moves to the ring, where the oldest is forgotten.
void ids_answer(struct ids *ids, int slot);
// The id of a living job.
const struct request_id *ids_of(const struct ids *ids, int slot);

#endif
