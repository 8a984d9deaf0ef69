// SPDX-License-Identifier: Apache-2.0
// Jobs of other kinds than attention, submitted to a daemon of a test.
#ifndef CPATTN_TESTS_KINDS_JOB_CALLS_H
#define CPATTN_TESTS_KINDS_JOB_CALLS_H

#include "plan/kind.h"
#include "tests/daemon/daemon_fixture.h"

// A request with all fields of the spec.
struct wire_request job_request(const struct job_kind *kind, const void *spec);

// Runs a request that must pass. Returns the digest.
uint64_t job_digest(struct daemon *d, const struct wire_request *request);

// Runs a request that is refused with this status; the message contains the text.
void job_refused(struct daemon *d, const struct wire_request *request, enum status status,
                 const char *text);

// Runs a request with `verify` off. It completes unverified.
void job_unverified(struct daemon *d, const struct wire_request *request);

// Runs a long request of three ranks and kills rank 2. The answer must name this rank.
void job_killed(struct daemon *d, const struct wire_request *request);

#endif
