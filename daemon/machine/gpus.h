// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, as the CUDA rank program sees them. The daemon itself never loads CUDA,
// so that CUDA cannot harm the supervisor.
#ifndef CPATTN_DAEMON_MACHINE_GPUS_H
#define CPATTN_DAEMON_MACHINE_GPUS_H

#include <stddef.h>

#include "daemon/process/confine.h"
#include "proto/wire.h"

// Runs `program --probe` with the environment and confinement of a rank, kills it after limit_ms,
// and parses its output into `devices`, in the printed order. *count is 1..DEVICES_MAX.
// UNAVAILABLE: there is no GPU, with the program's reason; or the program cannot be run, is too
// slow, or prints invalid lines. Call on the main thread.
enum status gpus_probe(const char *program, const struct confinement *confinement, int limit_ms,
                       struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error) MUST_CHECK;

// Parses the list, one line per GPU: "device 0 sm_90 143771 MiB NVIDIA H200". Other lines are
// skipped. DATA_LOSS: a malformed device line, a device named twice, or too many. Modifies `text`.
enum status gpus_parse(char *text, struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error) MUST_CHECK;

#endif
