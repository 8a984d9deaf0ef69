// SPDX-License-Identifier: Apache-2.0
// Restricts a rank process to the devices of its pool. The driver's start takes a third of a second
// for each visible device, and NCCL's start takes twice as long if it cannot see the devices of the
// peers.
#ifndef CPATTN_RANK_CUDA_DEVICE_H
#define CPATTN_RANK_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/limits.h"
#include "transport/transport.h"

// The device of this rank, and the ranks of the pool that share it.
struct device_place {
    int index;  // CUDA device index, after the restriction
    int ranks;  // number of ranks on the device, this one included
    int before; // number of them with lower ranks
};

// Exchanges device numbers with all ranks, sets CUDA_VISIBLE_DEVICES to the devices of the ranks on
// this host, and fills *place. `device` counts the devices that CUDA_VISIBLE_DEVICES lists at the
// call. Call it before any CUDA function; all ranks of `control` (no exchange in progress) must
// call it.
enum status device_choose(struct transport *control, int device, struct device_place *place,
                          struct error *error) MUST_CHECK;

// Writes the names of the used devices, separated by commas. `visible` is CUDA_VISIBLE_DEVICES; if
// it is NULL, a device's name is its number. UNAVAILABLE: `visible` lacks a used device.
enum status device_names(const char *visible, const bool used[DEVICES_MAX], char *names,
                         size_t size, struct error *error) MUST_CHECK;

#endif
