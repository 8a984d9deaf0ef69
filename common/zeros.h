// SPDX-License-Identifier: Apache-2.0
// Zeroed memory, aligned to a cache line. The system provides each page when it is first touched,
// so that unused parts of large scratch memory cost nothing.
#ifndef CPATTN_COMMON_ZEROS_H
#define CPATTN_COMMON_ZEROS_H

#include <stdint.h>
#include <stdlib.h>

#define ZEROS_ALIGNMENT 64

// Returns the memory, and in `*owner` the pointer for free(). Both are NULL if memory is short.
static inline void *zeros_create(size_t bytes, void **owner)
{
    *owner = calloc(1, bytes + ZEROS_ALIGNMENT);
    uintptr_t begin = ((uintptr_t)*owner + ZEROS_ALIGNMENT - 1) / ZEROS_ALIGNMENT * ZEROS_ALIGNMENT;
    return (void *)begin;
}

#endif
