// SPDX-License-Identifier: Apache-2.0
// Zeroed memory that begins with a cache line. The system provides each page when it is first used,
// so that large scratch memory costs only what is used of it.
#ifndef CPATTN_COMMON_ZEROS_H
#define CPATTN_COMMON_ZEROS_H

#include <stdint.h>
#include <stdlib.h>

#define ZEROS_ALIGNMENT 64

// `*owner` is for free(). NULL, and `*owner` too, if there is not enough memory.
static inline void *zeros_create(size_t bytes, void **owner)
{
    *owner = calloc(1, bytes + ZEROS_ALIGNMENT);
    uintptr_t begin = ((uintptr_t)*owner + ZEROS_ALIGNMENT - 1) / ZEROS_ALIGNMENT * ZEROS_ALIGNMENT;
    return (void *)begin;
}

#endif
