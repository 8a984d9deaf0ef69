// SPDX-License-Identifier: Apache-2.0
// How cases have lost their pools, in a sentence each, for those who submit them again. The last
// LOSSES_MAX cases; what the core still holds against a case is among them, unless many others have
// done the same since.
#ifndef CPATTN_DAEMON_IO_LOSSES_H
#define CPATTN_DAEMON_IO_LOSSES_H

#include <stdint.h>

#include "common/status.h"

#define LOSSES_MAX 128

struct losses {
    struct loss {
        uint64_t case_hash;
        char text[ERROR_TEXT_MAX]; // empty: the entry is free
    } entries[LOSSES_MAX];
    int next;
};

// The last of its case counts. That the pool is being restarted is left out. A zeroed one is
// empty.
void losses_note(struct losses *l, uint64_t case_hash, const char *text);

// "" when nothing is known.
const char *losses_find(const struct losses *l, uint64_t case_hash);

#endif
