// SPDX-License-Identifier: Apache-2.0
// Lists the devices that this build can use.
#ifndef CPATTN_RANK_CUDA_PROBE_H
#define CPATTN_RANK_CUDA_PROBE_H

// Prints a line for each usable device on stdout, "device 0 sm_90 143771 MiB NVIDIA H200", and what
// is wrong with another one on stderr. Returns the exit status: 0, or 69 where none is usable, and
// then stderr has one sentence why.
int probe_run(void);

// rank/provider_probe.h with a device, by its number, that is current.
int probe_provider(const char *name, const char *device);

#endif
