// SPDX-License-Identifier: Apache-2.0
// Checks a request before the pool core gets it: refuses users that are not served, network clients
// without the token, and cases that exceed the machine.
#ifndef CPATTN_DAEMON_SERVICE_GATE_H
#define CPATTN_DAEMON_SERVICE_GATE_H

#include <stdbool.h>

#include "common/status.h"
#include "daemon/core/core.h"
#include "daemon/net/peer.h"
#include "daemon/service/service_config.h"
#include "plan/kind.h"

// True for administrators: root, the user of the daemon, and users of the setting admin-users, all
// through the unix socket. They are always served, and may give orders about requests of other
// users, devices and settings.
bool gate_is_ruler(const struct service_config *config, const struct peer *peer);

// PERMISSION_DENIED if the peer is not an administrator.
enum status gate_check_ruler(const struct service_config *config, const struct peer *peer,
                             struct error *error) MUST_CHECK;

// UNAUTHENTICATED if the request came over a network without the required token. Does not decode
// the request beyond its id and token; `id` is filled in if it can be read.
enum status gate_check_token(const struct service_config *config, const struct peer *peer,
                             const void *data, size_t size, struct request_id *id,
                             struct error *error) MUST_CHECK;

// PERMISSION_DENIED if the settings restrict the users, or for network clients the certificate
// subjects, and the peer is not among them.
enum status gate_check_peer(const struct service_config *config, const struct peer *peer,
                            struct error *error) MUST_CHECK;

// Reads the spec of a RUN: a case, or a job of another kind. INVALID_ARGUMENT: its kind is unknown,
// or job_spec_parse() refuses it.
enum status gate_read_job(const struct wire_request *request, struct job_spec *spec,
                          struct error *error) MUST_CHECK;

// Describes the job to the pool core, with its lower bound of time and its memory over all ranks.
struct core_request gate_core_request(const struct service_config *config,
                                      const struct wire_request *request,
                                      const struct job_spec *spec, const struct peer *peer);

// Checks that this daemon can run the job. INVALID_ARGUMENT: there is no such implementation; names
// the existing ones. FAILED_PRECONDITION: the implementation does not take the world size, there is
// no such provider, or the ranks need more descriptors than the daemon has. RESOURCE_EXHAUSTED: the
// job needs more memory than is granted.
enum status gate_check_job(const struct service_config *config, const struct job_spec *spec,
                           struct error *error) MUST_CHECK;

// Checks a job with `bytes` of a client's tensors, which each rank maps. FAILED_PRECONDITION: the
// daemon has other hosts. RESOURCE_EXHAUSTED: job and tensors exceed rank-memory.
enum status gate_check_tensors(const struct service_config *config, const struct job_spec *spec,
                               int64_t bytes, struct error *error) MUST_CHECK;

#endif
