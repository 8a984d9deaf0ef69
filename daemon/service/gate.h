// SPDX-License-Identifier: Apache-2.0
// Checks of a request before the pool core gets it: refuses users that are not served, network
// clients without the token, and cases that exceed the machine.
#ifndef CPATTN_DAEMON_SERVICE_GATE_H
#define CPATTN_DAEMON_SERVICE_GATE_H

#include <stdbool.h>

#include "common/status.h"
#include "daemon/core/core.h"
#include "daemon/net/peer.h"
#include "daemon/service/service_config.h"
#include "plan/kind.h"

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

// What is asked for, from a RUN: a case, or a job of another kind. INVALID_ARGUMENT: it is of no
// kind that there is, or job_spec_parse() refuses it.
enum status gate_read_job(const struct wire_request *request, struct job_spec *spec,
                          struct error *error) MUST_CHECK;

// The same for the pool core, with the bounds of time and what it takes of the memory that jobs may
// take together.
struct core_request gate_core_request(const struct service_config *config,
                                      const struct wire_request *request,
                                      const struct job_spec *spec, const struct peer *peer);

// INVALID_ARGUMENT: there is no such implementation, with those that there are.
// FAILED_PRECONDITION: it does not take the world size, or there is no such provider.
// RESOURCE_EXHAUSTED: it needs more memory than is granted. FAILED_PRECONDITION: its ranks need
// more descriptors than there are.
enum status gate_check_job(const struct service_config *config, const struct job_spec *spec,
                           struct error *error) MUST_CHECK;

// Whether ranks can map so many bytes of a client's tensors beside what the job needs.
// RESOURCE_EXHAUSTED.
enum status gate_check_tensors(const struct service_config *config, const struct job_spec *spec,
                               int64_t bytes, struct error *error) MUST_CHECK;

#endif
