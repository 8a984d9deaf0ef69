// SPDX-License-Identifier: Apache-2.0
// Tests the providers of the settings at the daemon's start, with the rank program.
#ifndef CPATTN_DAEMON_MACHINE_PROVIDERS_H
#define CPATTN_DAEMON_MACHINE_PROVIDERS_H

#include "daemon/machine/backend.h"
#include "daemon/settings/provider_list.h"

// Fills in the providers of the description for clients. `PROGRAM --probe-provider` loads and opens
// each provider once, with the environment and confinement of ranks, within limit_ms.
// FAILED_PRECONDITION: a provider cannot be loaded; the message is the loader's. A failed open(),
// which may be temporary, is no error: its reason goes to `trouble` and the log. The list must be
// in the environment (provider_list_export()). Call on the main thread.
enum status providers_try(const struct provider_list *list, const struct backend *backend,
                          int limit_ms, struct wire_description *description,
                          struct error *error) MUST_CHECK;

#endif
