// SPDX-License-Identifier: Apache-2.0
// What is refused before the pool core is asked: users that are not served, clients over a network
// without the token, cases beyond what the machine has for them.
#ifndef CPATTN_DAEMON_SERVICE_GATE_H
#define CPATTN_DAEMON_SERVICE_GATE_H

#include <stdbool.h>

#include "common/status.h"
#include "daemon/net/peer.h"
#include "daemon/service/service_config.h"

// Root, who runs the daemon, and whom the settings name: served in any case, and obeyed about
// others' requests, devices and settings.
bool gate_is_ruler(const struct service_config *config, const struct peer *peer);

// PERMISSION_DENIED, where it is somebody else.
enum status gate_check_ruler(const struct service_config *config, const struct peer *peer,
                             struct error *error) MUST_CHECK;

// UNAUTHENTICATED, where it came over a network and its request, which is not decoded for that,
// presents another token than is asked for; `id` is filled in as far as it can be read.
enum status gate_check_token(const struct service_config *config, const struct peer *peer,
                             const void *data, size_t size, struct request_id *id,
                             struct error *error) MUST_CHECK;

// PERMISSION_DENIED, where the settings name others: users, or subjects of certificates of clients
// over a network.
enum status gate_check_peer(const struct service_config *config, const struct peer *peer,
                            struct error *error) MUST_CHECK;

// The number of the case's implementation: 0 for our own, i + 1 for the i-th guest, -1 where there
// is no such guest.
int gate_implementation(const struct service_config *config, const struct cp_case *c);

// What the case takes of the memory that cases may take together, over all its ranks.
uint64_t gate_memory(const struct cp_case *c);

// INVALID_ARGUMENT: there is no such implementation, with those that there are.
// FAILED_PRECONDITION: it does not take the world size. UNIMPLEMENTED: the daemon has GPUs.
// RESOURCE_EXHAUSTED: it needs more memory than is granted. FAILED_PRECONDITION: its ranks need
// more descriptors than there are.
enum status gate_check_case(const struct service_config *config, const struct cp_case *c,
                            struct error *error) MUST_CHECK;

// Whether ranks can map so many bytes of a client's tensors beside what the case needs.
// RESOURCE_EXHAUSTED.
enum status gate_check_tensors(const struct service_config *config, const struct cp_case *c,
                               int64_t bytes, struct error *error) MUST_CHECK;

#endif
