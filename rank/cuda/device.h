// SPDX-License-Identifier: Apache-2.0
// Restricts a rank process to the devices of its pool. The driver takes a third of a second for
// each visible device, and NCCL takes twice as long if it cannot see the devices of the peers.
#ifndef CPATTN_RANK_CUDA_DEVICE_H
#define CPATTN_RANK_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/limits.h"
#include "transport/transport.h"

// Where a rank is.
struct device_place {
    int index;  // of its device among those that are visible
    int ranks;  // of the pool on this device, it included
    int before; // these of them have lower numbers
};

// Learns the devices of all ranks from them, leaves no others visible, and tells where the own rank
// is. Devices are counted among those that CUDA_VISIBLE_DEVICES leaves. To be called before
// anything of CUDA; all ranks of `control` (nothing under way) must call it.
enum status device_choose(struct transport *control, int device, struct device_place *place,
                          struct error *error) MUST_CHECK;

// The names of some devices, with commas between them. `visible`: CUDA_VISIBLE_DEVICES; without one
// (NULL) devices are named by their numbers. UNAVAILABLE: CUDA_VISIBLE_DEVICES lacks one of them.
enum status device_names(const char *visible, const bool used[DEVICES_MAX], char *names,
                         size_t size, struct error *error) MUST_CHECK;

#endif
