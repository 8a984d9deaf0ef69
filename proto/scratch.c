// SPDX-License-Identifier: Apache-2.0
#include "proto/scratch.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

#define BLOCK_BYTES (32 * 1024)

struct scratch_block {
    struct scratch_block *previous;
    size_t size; // of the bytes
    _Alignas(max_align_t) char bytes[];
};

static void *allocate(void *data, size_t size)
{
    return scratch_alloc(data, size);
}

// Everything is freed at once by scratch_fini().
static void release(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

void scratch_init(struct scratch *s, size_t budget_bytes)
{
    s->budget = s->left = budget_bytes;
    s->refused = false;
    s->over_budget = false;
    s->block = NULL;
    s->next = s->first;
    s->room = sizeof s->first;
    s->allocator = (ProtobufCAllocator){allocate, release, s};
}

// Wipes the memory, which may hold a token.
void scratch_fini(struct scratch *s)
{
    while (s->block) {
        struct scratch_block *block = s->block;
        s->block = block->previous;
        explicit_bzero(block->bytes, block->size);
        free(block);
    }
    explicit_bzero(s->first, sizeof(s->first));
}

static bool add_block(struct scratch *s, size_t size)
{
    size_t bytes = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    struct scratch_block *block = malloc(sizeof *block + bytes);
    if (!block)
        return false;
    block->previous = s->block;
    block->size = bytes;
    s->block = block;
    s->next = block->bytes;
    s->room = bytes;
    return true;
}

void *scratch_alloc(struct scratch *s, size_t size)
{
    const size_t mask = _Alignof(max_align_t) - 1;
    if (size > s->left || ((size + mask) & ~mask) > s->left) {
        s->refused = true;
        s->over_budget = true;
        return NULL;
    }
    size = (size + mask) & ~mask;
    if (size > s->room && !add_block(s, size)) {
        s->refused = true;
        return NULL;
    }
    void *piece = s->next;
    s->next += size;
    s->room -= size;
    s->left -= size;
    return memset(piece, 0, size);
}

enum status scratch_refusal(const struct scratch *s, const char *what, struct error *error)
{
    if (s->over_budget)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%s takes more memory than the %zu bytes that one may take", what,
                         s->budget);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for %s", what);
}
