// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/recall.h"

#include <stdlib.h>
#include <string.h>

static void entry_drop(struct recall *r, int place)
{
    struct recall_entry *entry = &r->entries[place];
    free(entry->data);
    r->bytes -= entry->size;
    *entry = (struct recall_entry){0};
}

void recall_keep(struct recall *r, int place, const void *data, size_t size)
{
    struct recall_entry *entry = &r->entries[place];
    entry_drop(r, place);
    if (r->bytes == 0)
        r->oldest = place;
    else if (place == r->oldest)
        r->oldest = (place + 1) % ANSWERED_IDS_MAX;
    while (r->bytes > 0 && r->bytes + size > RECALL_BYTES_MAX) {
        entry_drop(r, r->oldest);
        r->oldest = (r->oldest + 1) % ANSWERED_IDS_MAX;
    }
    entry->data = size <= RECALL_BYTES_MAX ? malloc(size) : NULL;
    if (!entry->data)
        return;
    memcpy(entry->data, data, size);
    entry->size = size;
    r->bytes += size;
}

bool recall_find(const struct recall *r, int place, const void **data, size_t *size)
{
    const struct recall_entry *entry = &r->entries[place];
    *data = entry->data;
    *size = entry->size;
    return entry->data != NULL;
}

void recall_clear(struct recall *r)
{
    for (int place = 0; place < ANSWERED_IDS_MAX; place++)
        entry_drop(r, place);
}
