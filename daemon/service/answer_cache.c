// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/answer_cache.h"

#include <stdlib.h>
#include <string.h>

static void entry_drop(struct answer_cache *r, int index)
{
    struct answer_cache_entry *entry = &r->entries[index];
    free(entry->data);
    r->bytes -= entry->size;
    *entry = (struct answer_cache_entry){0};
}

void answer_cache_keep(struct answer_cache *r, int index, const void *data, size_t size)
{
    struct answer_cache_entry *entry = &r->entries[index];
    entry_drop(r, index);
    if (r->bytes == 0)
        r->oldest = index;
    else if (index == r->oldest)
        r->oldest = (index + 1) % ANSWERED_IDS_MAX;
    while (r->bytes > 0 && r->bytes + size > ANSWERS_BYTES_MAX) {
        entry_drop(r, r->oldest);
        r->oldest = (r->oldest + 1) % ANSWERED_IDS_MAX;
    }
    entry->data = data && size <= ANSWERS_BYTES_MAX ? malloc(size) : NULL;
    if (!entry->data)
        return;
    memcpy(entry->data, data, size);
    entry->size = size;
    r->bytes += size;
}

bool answer_cache_find(const struct answer_cache *r, int index, const void **data, size_t *size)
{
    const struct answer_cache_entry *entry = &r->entries[index];
    *data = entry->data;
    *size = entry->size;
    return entry->data != NULL;
}

void answer_cache_clear(struct answer_cache *r)
{
    for (int index = 0; index < ANSWERED_IDS_MAX; index++)
        entry_drop(r, index);
}
