// SPDX-License-Identifier: Apache-2.0
// Lists the devices that this build can use.
#ifndef CPATTN_RANK_CUDA_PROBE_H
#define CPATTN_RANK_CUDA_PROBE_H

// Prints a line for each usable device on stdout, "device 0 sm_90 143771 MiB NVIDIA H200", and the
// reason for each unusable one on stderr. Returns the exit status: 0, or 69 if none is usable, with
// one sentence on stderr.
int probe_run(void);

// Calls provider_probe() with this device as the current one.
int probe_provider(const char *name, const char *device);

#endif
