// SPDX-License-Identifier: Apache-2.0
// Tests a provider before a case names it, in a separate process.
#ifndef CPATTN_RANK_PROVIDER_PROBE_H
#define CPATTN_RANK_PROVIDER_PROBE_H

#include "kernels/backend.h"

#define PROVIDER_PROBE_OPTION "--probe-provider"

// Loads a provider of the list of the environment (rank/providers.h) for tensors of that backend,
// calls its open() and close(), and prints the outcome on stdout, one line each:
//     loads           the object is loaded and its table is valid
//     opens ABOUT     it can be used; its description of itself
//     unusable WHY    it cannot be loaded, or is not for this backend
//     fails WHY       its open() failed
// Returns the exit status: 0, or 69 (of sysexits.h). What the object prints itself goes to stderr.
int provider_probe(const char *name, const struct backend_ops *ops);

#endif
