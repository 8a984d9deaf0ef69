// SPDX-License-Identifier: Apache-2.0
// A hash table of the request ids of open jobs and of the last ANSWERED_IDS_MAX answered jobs, with
// the user and the case of each, so that no request runs twice. Allocates only in ids_init().
#ifndef CPATTN_DAEMON_CORE_IDS_H
#define CPATTN_DAEMON_CORE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "proto/wire.h"

enum ids_state {
    IDS_UNKNOWN,
    IDS_LIVING,   // the index is the slot of the job
    IDS_ANSWERED, // the index is that of its answer, 0..ANSWERED_IDS_MAX-1
};

// What a request id stands for.
struct ids_claim {
    uint64_t case_hash;
    uint32_t user;
};

struct ids_entry {
    struct request_id id;
    struct ids_claim claim;
    int next;  // in the chain of its bucket: 1 + index; 0: the end
    bool used; // the entry is in a chain
};

struct ids {
    // The first `slots` entries are ids of open jobs, by slot; the rest is a ring of answered ids.
    struct ids_entry *entries;
    int *buckets; // 1 + index of the first entry of the chain; 0: empty
    int slots;
    int oldest; // index in the ring that the next answered id takes
};

// Slots are 0..slots-1. False when memory is short; ids_fini() accepts this state and a zeroed one.
bool ids_init(struct ids *ids, int slots);
void ids_fini(struct ids *ids);

// If the id is known, sets `index`, and points `claim` into the table, valid until the table
// changes.
enum ids_state ids_find(const struct ids *ids, const struct request_id *id, int *index,
                        const struct ids_claim **claim);
// Adds the id of the job in a slot. The id must be unknown and the slot free.
void ids_add(struct ids *ids, int slot, const struct request_id *id, const struct ids_claim *claim);
// The job of the slot has been answered: moves its id to the ring, in place of the oldest. Returns
// its index there.
int ids_answer(struct ids *ids, int slot);
// Removes the id of the job of the slot, as if the job had never been admitted.
void ids_forget(struct ids *ids, int slot);
// The id of an open job.
const struct request_id *ids_of(const struct ids *ids, int slot);

#endif
