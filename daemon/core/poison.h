// SPDX-License-Identifier: Apache-2.0
// Cases that kill their pools. A case that loses two pools without a complete run in between is
// refused for an hour. Deadlines and cancellations, which the client chooses, do not count, nor do
// ranks that were killed from outside. The table is small; the entry seen longest ago is replaced
// first.
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
        uint64_t until_ns; // the entry counts before this
        int kills;         // 0: free
    } entries[POISON_ENTRIES];
};

// Remaining time for which the case is refused; 0: it is not refused.
uint64_t poison_left_ns(const struct poison *p, uint64_t now_ns, uint64_t hash);
// A pool was lost while it ran the case.
void poison_convict(struct poison *p, uint64_t now_ns, uint64_t hash);
// Clears the table; returns the number of cases that were refused.
int poison_lift(struct poison *p, uint64_t now_ns);
// The case ran to its end.
void poison_acquit(struct poison *p, uint64_t hash);

#endif
