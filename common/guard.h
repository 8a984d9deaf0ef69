// SPDX-License-Identifier: Apache-2.0
// Guard bytes around memory that other code writes: they show writes before its begin and behind
// its end.
#ifndef CPATTN_COMMON_GUARD_H
#define CPATTN_COMMON_GUARD_H

#include <stdint.h>

// Guard bytes on each side, a multiple of every alignment that memory of tensors has; their value.
#define GUARD_BYTES 256
#define GUARD_BYTE  0xa5

// Number of guard bytes that have changed.
static inline int64_t guard_changed(const unsigned char *guard, int64_t bytes)
{
    int64_t changed = 0;
    for (int64_t i = 0; i < bytes; i++)
        changed += guard[i] != GUARD_BYTE;
    return changed;
}

#endif
