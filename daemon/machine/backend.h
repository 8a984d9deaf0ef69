// SPDX-License-Identifier: Apache-2.0
// The backend: program, devices and confinement of the ranks, selected once at the start from the
// configuration and the machine.
#ifndef CPATTN_DAEMON_MACHINE_BACKEND_H
#define CPATTN_DAEMON_MACHINE_BACKEND_H

#include "daemon/process/confine.h"
#include "daemon/settings/settings.h"
#include "proto/wire.h"

struct backend {
    char name[16];        // "cpu", "cuda"
    const char *program;  // of the ranks; borrowed from the configuration
    int device_count;     // devices that pools share: cores or GPUs, 1..DEVICES_MAX
    int ranks_per_device; // upper bound for one pool; > 1 is used only if devices are too few
    bool spares;          // each pool has a spare
    int64_t memory_bytes; // default limit for all running cases together
    struct confinement confinement;
    int gpu_count; // device_count with GPUs, else 0
    struct wire_device gpus[DEVICES_MAX];
};

// "auto" uses the GPUs if there are any, and otherwise the CPU and logs the reason. Fails with a
// sentence about the remedy. FAILED_PRECONDITION: no usable GPU with "cuda"; the machine has GPUs
// but not those that --devices asks for; --devices names GPUs and the ranks run on the CPU. Also
// errors of the confinement: spawn_try(), filter_create(), confine_check_rights(). Call on the main
// thread, before other threads are started.
enum status backend_choose(const struct settings *config, struct backend *backend,
                           struct error *error) MUST_CHECK;

#endif
