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
    int oldest; // index of the oldest stored answer
};

// Stores a copy at an index, which is one higher than that of the previous call. Stores nothing if
// memory is short. A zeroed cache is empty.
void answer_cache_keep(struct answer_cache *r, int index, const void *data, size_t size);

// Finds the answer at an index, valid until the next call; false: it was freed.
bool answer_cache_find(const struct answer_cache *r, int index, const void **data, size_t *size);

// Frees every stored answer.
void answer_cache_clear(struct answer_cache *r);

#endif
