// SPDX-License-Identifier: Apache-2.0
// Tests a provider in a separate process, before a case uses it.
#ifndef CPATTN_RANK_PROVIDER_PROBE_H
#define CPATTN_RANK_PROVIDER_PROBE_H

#include "kernels/backend.h"

#define PROVIDER_PROBE_OPTION "--probe-provider"

// Loads a provider listed in CPATTN_PROVIDERS (rank/providers.h) for tensors of this backend, calls
// its open() and close(), and prints on stdout, one line each:
//     loads           the object is loaded and its table is valid
//     opens ABOUT     open() succeeded; ABOUT is the provider's description of itself
//     unusable WHY    the provider cannot be loaded, or does not work with this backend
//     fails WHY       open() failed
// Returns the exit status: 0, or 69 (EX_UNAVAILABLE of sysexits.h). Output of the object itself
// goes to stderr.
int provider_probe(const char *name, const struct backend_ops *ops);

#endif
