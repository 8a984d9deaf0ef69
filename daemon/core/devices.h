// SPDX-License-Identifier: Apache-2.0
// Sets of devices over all hosts, and the places of pools: the same slots on each of some hosts. A
// place contains only devices that its hosts have.
#ifndef CPATTN_DAEMON_CORE_DEVICES_H
#define CPATTN_DAEMON_CORE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/limits.h"

_Static_assert(HOSTS_MAX <= 64 && DEVICES_MAX <= 64,
               "hosts, and the devices of one, are bits of one word");

struct devices {
    uint64_t on[HOSTS_MAX]; // by host: bit mask of slots
};

struct place {
    uint64_t hosts, slots; // bit masks
};

// Bit mask of the lowest `count` bits, 0..64.
static inline uint64_t mask_of(int count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static inline uint64_t bit_of(int index)
{
    return UINT64_C(1) << index;
}

static inline int bits_in(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

// Index of the set bit of the mask that has `before` set bits below it; there must be one.
static inline int bit_at(uint64_t mask, int before)
{
    while (before-- > 0)
        mask &= mask - 1;
    return __builtin_ctzll(mask);
}

// True if a device of the place is in the set.
static inline bool devices_meet(const struct devices *devices, const struct place *place)
{
    for (uint64_t left = place->hosts; left; left &= left - 1)
        if (devices->on[__builtin_ctzll(left)] & place->slots)
            return true;
    return false;
}

// Number of devices of the place that are in the set.
static inline int devices_shared(const struct devices *devices, const struct place *place)
{
    int count = 0;
    for (uint64_t left = place->hosts; left; left &= left - 1)
        count += bits_in(devices->on[__builtin_ctzll(left)] & place->slots);
    return count;
}

// Adds the devices of the place to the set, except slots that `all` lacks.
static inline void devices_add(struct devices *devices, const struct place *place,
                               const struct devices *all)
{
    for (uint64_t left = place->hosts; left; left &= left - 1)
        devices->on[__builtin_ctzll(left)] |= place->slots & all->on[__builtin_ctzll(left)];
}

static inline void devices_remove(struct devices *devices, const struct place *place)
{
    for (uint64_t left = place->hosts; left; left &= left - 1)
        devices->on[__builtin_ctzll(left)] &= ~place->slots;
}

static inline bool devices_any(const struct devices *devices, int host_count)
{
    uint64_t any = 0;
    for (int host = 0; host < host_count; host++)
        any |= devices->on[host];
    return any != 0;
}

static inline bool devices_equal(const struct devices *devices, const struct devices *other)
{
    return memcmp(devices, other, sizeof(*devices)) == 0;
}

#endif
