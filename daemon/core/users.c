// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/users.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool users_init(struct users *u, int jobs)
{
    uint32_t entries = 2; // never full, so that every search ends
    while (entries < 2 * (uint32_t)jobs)
        entries *= 2;
    u->mask = entries - 1;
    u->entries = calloc(entries, sizeof(*u->entries));
    return u->entries != NULL;
}

void users_fini(struct users *u)
{
    free(u->entries);
    memset(u, 0, sizeof(*u));
}

// Where the search for the user begins.
static uint32_t users_home(const struct users *u, uint32_t user)
{
    return (user * UINT32_C(0x9e3779b1) >> 7) & u->mask;
}

// The entry of the user, or the free one where it belongs.
static uint32_t users_find(const struct users *u, uint32_t user)
{
    uint32_t at = users_home(u, user);
    while (u->entries[at].jobs > 0 && u->entries[at].user != user)
        at = (at + 1) & u->mask;
    return at;
}

int users_jobs(const struct users *u, uint32_t user)
{
    return u->entries[users_find(u, user)].jobs;
}

void users_add(struct users *u, uint32_t user)
{
    struct users_entry *entry = &u->entries[users_find(u, user)];
    entry->user = user;
    entry->jobs++;
}

// Moves entries that were searched past the hole into it, so that no search ends too early.
static void users_close_gap(struct users *u, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & u->mask; u->entries[at].jobs > 0; at = (at + 1) & u->mask) {
        uint32_t home = users_home(u, u->entries[at].user);
        if (((at - home) & u->mask) < ((at - hole) & u->mask))
            continue;
        u->entries[hole] = u->entries[at];
        u->entries[at].jobs = 0;
        hole = at;
    }
}

void users_remove(struct users *u, uint32_t user)
{
    uint32_t at = users_find(u, user);
    assert(u->entries[at].jobs > 0);
    if (--u->entries[at].jobs == 0)
        users_close_gap(u, at);
}
