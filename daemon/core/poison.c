// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/poison.h"

#include <stddef.h>

// True if the entry is in use and has not expired.
static bool poison_counts(const struct poison_entry *entry, uint64_t now_ns)
{
    return entry->kills > 0 && entry->until_ns > now_ns;
}

uint64_t poison_left_ns(const struct poison *p, uint64_t now_ns, uint64_t hash)
{
    for (int i = 0; i < POISON_ENTRIES; i++) {
        const struct poison_entry *entry = &p->entries[i];
        if (entry->hash == hash && entry->kills >= POISON_KILLS && poison_counts(entry, now_ns))
            return entry->until_ns - now_ns;
    }
    return 0;
}

// Returns the entry of the case, creating it if necessary. Clears expired entries. If the table is
// full, replaces an entry with one kill before that of a refused case, so that a stream of new
// cases cannot evict refused cases; among equals, replaces the one that expires first.
static struct poison_entry *poison_entry(struct poison *p, uint64_t now_ns, uint64_t hash)
{
    struct poison_entry *spare = &p->entries[0];
    for (int i = 0; i < POISON_ENTRIES; i++) {
        struct poison_entry *entry = &p->entries[i];
        if (!poison_counts(entry, now_ns))
            *entry = (struct poison_entry){0};
        else if (entry->hash == hash)
            return entry;
        bool refused = entry->kills >= POISON_KILLS, spare_refused = spare->kills >= POISON_KILLS;
        if (refused != spare_refused ? spare_refused : entry->until_ns < spare->until_ns)
            spare = entry;
    }
    *spare = (struct poison_entry){.hash = hash};
    return spare;
}

void poison_convict(struct poison *p, uint64_t now_ns, uint64_t hash)
{
    struct poison_entry *entry = poison_entry(p, now_ns, hash);
    entry->kills++;
    entry->until_ns = now_ns + POISON_NS;
}

int poison_lift(struct poison *p, uint64_t now_ns)
{
    int refused = 0;
    for (int i = 0; i < POISON_ENTRIES; i++) {
        const struct poison_entry *entry = &p->entries[i];
        refused += entry->kills >= POISON_KILLS && poison_counts(entry, now_ns);
    }
    *p = (struct poison){0};
    return refused;
}

void poison_acquit(struct poison *p, uint64_t hash)
{
    for (int i = 0; i < POISON_ENTRIES; i++)
        if (p->entries[i].hash == hash)
            p->entries[i] = (struct poison_entry){0};
}
