// SPDX-License-Identifier: Apache-2.0
// Stores the last answers as they were sent, so that a repeated request gets the same answer. The
// pool core assigns the indices, in a ring of ANSWERED_IDS_MAX. If the answers take more than
// ANSWERS_BYTES_MAX, the oldest are freed.
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
    size_t bytes; // of all stored answers
    int oldest;   // index of the oldest stored answer
};

// Stores a copy at an index, which follows that of the previous call in the ring. If memory is
// short, or `data` is NULL, the index is left empty. A zeroed cache is empty.
void answer_cache_keep(struct answer_cache *r, int index, const void *data, size_t size);

// Finds the answer at an index, valid until the next call; false: it was freed.
bool answer_cache_find(const struct answer_cache *r, int index, const void **data, size_t *size);

// Frees every stored answer.
void answer_cache_clear(struct answer_cache *r);

#endif
