// SPDX-License-Identifier: Apache-2.0
// Tests the providers of the settings at the daemon's start, with the rank program.
#ifndef CPATTN_DAEMON_MACHINE_PROVIDERS_H
#define CPATTN_DAEMON_MACHINE_PROVIDERS_H

#include "daemon/machine/backend.h"
#include "daemon/settings/provider_list.h"

// Fills the list for clients. Each provider is loaded and opened once by `PROGRAM --probe-provider`
// with the environment of ranks and as confined; it has limit_ms for that. FAILED_PRECONDITION with
// the loader's message for the first that cannot be loaded, which no case could use. One whose
// open() fails, which may be mended while the daemon runs, has the reason in `trouble`, and in the
// log. The list is in the environment (provider_list_export()). To be called on the main thread.
enum status providers_try(const struct provider_list *list, const struct backend *backend,
                          int limit_ms, struct wire_description *description,
                          struct error *error) MUST_CHECK;

#endif
