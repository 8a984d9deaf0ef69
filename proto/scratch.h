// SPDX-License-Identifier: Apache-2.0
// Memory for one message: allocated in pieces within a budget, freed all at once. The budget limits
// the memory that a small hostile message can use.
#ifndef CPATTN_PROTO_SCRATCH_H
#define CPATTN_PROTO_SCRATCH_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

#define SCRATCH_FIRST_BYTES 4096 // enough for a request, so that it needs no malloc

struct scratch {
    size_t budget, left;         // bytes in total, bytes left
    bool refused;                // an allocation failed
    bool over_budget;            // an allocation failed because of the budget
    struct scratch_block *block; // the newest block; chained, owned
    char *next;                  // start of the next piece
    size_t room;                 // bytes from `next` to the end of the block
    ProtobufCAllocator allocator;
    _Alignas(max_align_t) char first[SCRATCH_FIRST_BYTES];
};

// Limits all pieces together to budget_bytes. The object must not be moved or copied afterwards.
void scratch_init(struct scratch *s, size_t budget_bytes);
void scratch_fini(struct scratch *s); // wipes and frees every piece

// Returns zeroed memory, aligned for any type; NULL if the budget or the memory is exhausted.
void *scratch_alloc(struct scratch *s, size_t size);

// RESOURCE_EXHAUSTED, with a text about `what` that says why an allocation failed.
enum status scratch_refusal(const struct scratch *s, const char *what, struct error *error);

#endif
