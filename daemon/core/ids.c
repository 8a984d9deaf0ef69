// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/ids.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Twice the largest number of ids, so that chains stay short.
#define IDS_BUCKETS (2 * (JOBS_MAX + ANSWERED_IDS_MAX))

_Static_assert((IDS_BUCKETS & (IDS_BUCKETS - 1)) == 0, "a bucket is chosen by a mask");

bool ids_init(struct ids *ids, int slots)
{
    memset(ids, 0, sizeof(*ids));
    ids->slots = slots;
    ids->entries = calloc((size_t)slots + ANSWERED_IDS_MAX, sizeof(*ids->entries));
    ids->buckets = calloc(IDS_BUCKETS, sizeof(*ids->buckets));
    return ids->entries && ids->buckets;
}

void ids_fini(struct ids *ids)
{
    free(ids->entries);
    free(ids->buckets);
    memset(ids, 0, sizeof(*ids));
}

// Ids should be random. Chosen ids can at worst all fall into one chain.
static int *ids_bucket(const struct ids *ids, const struct request_id *id)
{
    uint64_t half[2];
    memcpy(half, id->bytes, sizeof(half));
    uint64_t mixed =
        (half[0] ^ (half[1] * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
    return &ids->buckets[(mixed >> 32) & (IDS_BUCKETS - 1)];
}

static void ids_link(struct ids *ids, int index, const struct request_id *id,
                     const struct ids_claim *claim)
{
    struct ids_entry *entry = &ids->entries[index];
    assert(!entry->used);
    int *bucket = ids_bucket(ids, id);
    *entry = (struct ids_entry){.id = *id, .claim = *claim, .next = *bucket, .used = true};
    *bucket = index + 1;
}

static void ids_unlink(struct ids *ids, int index)
{
    struct ids_entry *entry = &ids->entries[index];
    assert(entry->used);
    int *link = ids_bucket(ids, &entry->id);
    while (*link != index + 1)
        link = &ids->entries[*link - 1].next;
    *link = entry->next;
    entry->used = false;
}

enum ids_state ids_find(const struct ids *ids, const struct request_id *id, int *index,
                        const struct ids_claim **claim)
{
    int at = *ids_bucket(ids, id) - 1;
    while (at >= 0 && memcmp(&ids->entries[at].id, id, sizeof(*id)) != 0)
        at = ids->entries[at].next - 1;
    if (at < 0)
        return IDS_UNKNOWN;
    bool lives = at < ids->slots;
    *index = lives ? at : at - ids->slots;
    *claim = &ids->entries[at].claim;
    return lives ? IDS_LIVING : IDS_ANSWERED;
}

void ids_add(struct ids *ids, int slot, const struct request_id *id, const struct ids_claim *claim)
{
    assert(slot >= 0 && slot < ids->slots);
    ids_link(ids, slot, id, claim);
}

void ids_forget(struct ids *ids, int slot)
{
    assert(slot >= 0 && slot < ids->slots);
    ids_unlink(ids, slot);
}

int ids_answer(struct ids *ids, int slot)
{
    struct ids_entry entry = ids->entries[slot];
    ids_forget(ids, slot);
    int index = ids->oldest, at = ids->slots + index;
    if (ids->entries[at].used)
        ids_unlink(ids, at);
    ids_link(ids, at, &entry.id, &entry.claim);
    ids->oldest = (index + 1) % ANSWERED_IDS_MAX;
    return index;
}

const struct request_id *ids_of(const struct ids *ids, int slot)
{
    assert(ids->entries[slot].used);
    return &ids->entries[slot].id;
}
