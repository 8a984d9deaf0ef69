// SPDX-License-Identifier: Apache-2.0
// Stores the last answers as they were sent, so that a repeated request gets the same answer. The
// pool core assigns their indices in a ring. When they take too much memory, the oldest are freed
// first.
#ifndef CPATTN_DAEMON_SERVICE_ANSWER_CACHE_H
#define CPATTN_DAEMON_SERVICE_ANSWER_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/limits.h"

struct answer_cache {
    struct answer_cache_entry {
        void *data; // NULL: none
        size_t size;
    } entries[ANSWERED_IDS_MAX];
    size_t bytes;
    int oldest; // from here to the newest entries may be kept, and no others
};

// Keeps a copy at an index, which follows that of the call before. Where memory is short it is not
// kept. A zeroed one is empty.
void answer_cache_keep(struct answer_cache *r, int index, const void *data, size_t size);

// The answer at an index; false when it was given up. It is valid until the next call.
bool answer_cache_find(const struct answer_cache *r, int index, const void **data, size_t *size);

// Gives all up.
void answer_cache_clear(struct answer_cache *r);

#endif
