// SPDX-License-Identifier: Apache-2.0
// Cases that kill their pools. A case that loses two pools without a complete run in between is
// refused for an hour. Deadlines and cancellations, which the client chooses, do not count; ranks
// that were killed from outside do not count either. The table is small. When it is full, a new
// case replaces the oldest entry with one kill, or the oldest entry if all cases are refused.
#ifndef CPATTN_DAEMON_CORE_POISON_H
#define CPATTN_DAEMON_CORE_POISON_H

#include <stdbool.h>
#include <stdint.h>

#define POISON_ENTRIES 64
#define POISON_KILLS   2
#define POISON_NS      (UINT64_C(3600) * 1000000000)

struct poison {
    struct poison_entry {
        uint64_t hash;
        uint64_t until_ns; // when the entry expires
        int kills;         // 0: free
    } entries[POISON_ENTRIES];
};

// Returns the remaining time for which the case is refused; 0: it is not refused.
uint64_t poison_left_ns(const struct poison *p, uint64_t now_ns, uint64_t hash);
// Records that a pool was lost while it ran the case.
void poison_convict(struct poison *p, uint64_t now_ns, uint64_t hash);
// Clears the table; returns the number of cases that were refused.
int poison_lift(struct poison *p, uint64_t now_ns);
// Forgets the case, because it ran to its end.
void poison_acquit(struct poison *p, uint64_t hash);

#endif
