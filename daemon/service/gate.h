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

// True for administrators: root, the user of the daemon, and those in the settings. They are always
// served, and may give orders about the requests of others, devices and settings.
bool gate_is_ruler(const struct service_config *config, const struct peer *peer);

// PERMISSION_DENIED for anybody else.
enum status gate_check_ruler(const struct service_config *config, const struct peer *peer,
                             struct error *error) MUST_CHECK;

// UNAUTHENTICATED if the request came over a network without the required token. The request is not
// decoded for that; `id` is filled in if it can be read.
enum status gate_check_token(const struct service_config *config, const struct peer *peer,
                             const void *data, size_t size, struct request_id *id,
                             struct error *error) MUST_CHECK;

// PERMISSION_DENIED if the settings list the users, or subjects of network clients, that are
// served, and this one is not among them.
enum status gate_check_peer(const struct service_config *config, const struct peer *peer,
                            struct error *error) MUST_CHECK;

// Reads the spec of a RUN: a case, or a job of another kind. INVALID_ARGUMENT: its kind is unknown,
// or job_spec_parse() refuses it.
enum status gate_read_job(const struct wire_request *request, struct job_spec *spec,
                          struct error *error) MUST_CHECK;

// Describes the job to the pool core, with its bounds of time and its part of the memory of all
// jobs.
struct core_request gate_core_request(const struct service_config *config,
                                      const struct wire_request *request,
                                      const struct job_spec *spec, const struct peer *peer);

// INVALID_ARGUMENT: there is no such implementation; names the existing ones.
// FAILED_PRECONDITION: it does not take the world size, or there is no such provider.
// RESOURCE_EXHAUSTED: it needs more memory than is granted. FAILED_PRECONDITION: its ranks need
// more descriptors than there are.
enum status gate_check_job(const struct service_config *config, const struct job_spec *spec,
                           struct error *error) MUST_CHECK;

// RESOURCE_EXHAUSTED if the ranks cannot map this many bytes of a client's tensors in addition to
// the memory of the job.
enum status gate_check_tensors(const struct service_config *config, const struct job_spec *spec,
                               int64_t bytes, struct error *error) MUST_CHECK;

#endif
