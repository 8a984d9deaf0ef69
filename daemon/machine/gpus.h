// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, as the CUDA rank program sees them. The daemon itself never loads CUDA:
// what that does to a process, it must not do to the supervisor.
#ifndef CPATTN_DAEMON_MACHINE_GPUS_H
#define CPATTN_DAEMON_MACHINE_GPUS_H

#include <stddef.h>

#include "daemon/process/confine.h"
#include "proto/wire.h"

// Runs `program --probe` with the environment and as confined as a rank, and reads its list, in the
// order in which it tells them. It has limit_ms for that and is killed then. *count
// is 1..DEVICES_MAX. UNAVAILABLE when there is none, with the reason the program gives; also when
// it cannot be run, does not end in time, or says what makes no sense. To be called on the main
// thread.
enum status gpus_probe(const char *program, const struct confinement *confinement, int limit_ms,
                       struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error) MUST_CHECK;

// Reads the list, one line each: "device 0 sm_90 143771 MiB NVIDIA H200". Other lines are passed
// over. DATA_LOSS for a line that begins so and goes on otherwise, for a device named twice and for
// too many; `text` is cut into pieces.
enum status gpus_parse(char *text, struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error) MUST_CHECK;

#endif
