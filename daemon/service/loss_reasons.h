// SPDX-License-Identifier: Apache-2.0
// Explains why recent cases lost their pool, so that a resubmission can be told the reason. Stores
// the last LOSS_REASONS_MAX cases; an older entry may be evicted while its case is still refused.
#ifndef CPATTN_DAEMON_SERVICE_LOSS_REASONS_H
#define CPATTN_DAEMON_SERVICE_LOSS_REASONS_H

#include <stdint.h>

#include "common/status.h"

#define LOSS_REASONS_MAX 128

struct loss_reasons {
    struct loss {
        uint64_t case_hash;
        char text[ERROR_TEXT_MAX]; // empty: the entry is free
    } entries[LOSS_REASONS_MAX];
    int next;
};

// Stores the reason of a case, without its part about the restart of the pool. Replaces an earlier
// reason of the case. A zeroed struct is empty.
void loss_reasons_note(struct loss_reasons *l, uint64_t case_hash, const char *text);

// Returns the reason, or "" if none is stored.
const char *loss_reasons_find(const struct loss_reasons *l, uint64_t case_hash);

#endif
