// SPDX-License-Identifier: Apache-2.0
// Cases that kill their pools. Two pools in a row lost to the same case, without a run to its end
// in between, and the case is refused for an hour. Deadlines and cancellations are no evidence: the
// client chose them; nor are ranks that were killed from outside. A small table; the evidence
// against the case seen longest ago is forgotten first.
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
        uint64_t until_ns; // the evidence counts before this
        int kills;         // 0: free
    } entries[POISON_ENTRIES];
};

// How long the case is still refused; 0: it is not.
uint64_t poison_left_ns(const struct poison *p, uint64_t now_ns, uint64_t hash);
// A pool was lost while it ran the case.
void poison_convict(struct poison *p, uint64_t now_ns, uint64_t hash);
// Forgets all evidence; gives how many cases were refused.
int poison_lift(struct poison *p, uint64_t now_ns);
// The case ran to its end.
void poison_acquit(struct poison *p, uint64_t hash);

#endif
