// SPDX-License-Identifier: Apache-2.0
#include "common/bytering.h"

#include <stdlib.h>
#include <string.h>

enum status bytering_init(struct bytering *ring, size_t capacity)
{
    uint8_t *bytes = malloc(capacity);
    if (!bytes)
        return STATUS_RESOURCE_EXHAUSTED;
    *ring = (struct bytering){.bytes = bytes, .capacity = capacity};
    return STATUS_OK;
}

void bytering_fini(struct bytering *ring)
{
    free(ring->bytes);
    *ring = (struct bytering){0};
}

void bytering_clear(struct bytering *ring)
{
    ring->total = 0;
}

void bytering_write(struct bytering *ring, const void *data, size_t length)
{
    const uint8_t *source = data;
    if (length > ring->capacity) {
        // Only the end fits; the rest counts as overwritten.
        size_t lost = length - ring->capacity;
        ring->total += lost;
        source += lost;
        length = ring->capacity;
    }
    if (length == 0)
        return;
    size_t start = (size_t)(ring->total % ring->capacity);
    size_t until_wrap = ring->capacity - start;
    size_t first = length < until_wrap ? length : until_wrap;
    memcpy(ring->bytes + start, source, first);
    memcpy(ring->bytes, source + first, length - first);
    ring->total += length;
}

size_t bytering_kept(const struct bytering *ring)
{
    return ring->total < ring->capacity ? (size_t)ring->total : ring->capacity;
}

static char printable(uint8_t byte)
{
    return (byte >= ' ' && byte <= '~') || byte == '\n' || byte == '\t' ? (char)byte : '?';
}

size_t bytering_tail(const struct bytering *ring, char *text, size_t size)
{
    size_t length = bytering_kept(ring);
    if (length > size - 1)
        length = size - 1;
    for (size_t i = 0; i < length; i++)
        text[i] = printable(ring->bytes[(ring->total - length + i) % ring->capacity]);
    text[length] = '\0';
    return length;
}
