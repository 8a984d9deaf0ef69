// SPDX-License-Identifier: Apache-2.0
// What ranks compute with, on what and as whom, decided once at the start from the configuration
// and the machine.
#ifndef CPATTN_DAEMON_MACHINE_BACKEND_H
#define CPATTN_DAEMON_MACHINE_BACKEND_H

#include "daemon/process/confine.h"
#include "daemon/settings/settings.h"
#include "proto/wire.h"

struct backend {
    char name[16];        // "cpu", "cuda"
    const char *program;  // of the ranks; borrowed from the configuration
    int device_count;     // units that pools share: cores or GPUs, 1..DEVICES_MAX
    bool shares_devices;  // a pool may be larger than that
    bool spares;          // a second pool stands by behind each
    int64_t memory_bytes; // that one case may take over all ranks, where nothing else is set
    struct confinement confinement;
    int gpu_count; // device_count with GPUs, else 0
    struct wire_device gpus[DEVICES_MAX];
};

// With "auto" the GPUs are taken where there are any, and the reason is logged where not; with
// "cuda" that is an error whose sentence says what would help: FAILED_PRECONDITION. So are GPUs
// that were asked for and are not there, whatever the backend was to be, and a confinement that
// cannot be had. To be called on the main thread, before others are started.
enum status backend_choose(const struct settings *config, struct backend *backend,
                           struct error *error) MUST_CHECK;

#endif
