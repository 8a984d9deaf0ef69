// SPDX-License-Identifier: Apache-2.0
// Requests with tensors of the caller. The tensors travel to the ranks and back as shared memory,
// whose descriptors are handed in separately from the request (common/deposit.h).
#ifndef CPATTN_CLIENT_ATTEND_H
#define CPATTN_CLIENT_ATTEND_H

#include "client/client.h"
#include "plan/places.h"

// Tensors by enum whole_tensor, dense, in the caller's memory; NULL: none.
struct attend_tensors {
    const void *given[WHOLE_INPUTS];
    void *wanted[WHOLE_TENSORS];   // inputs, and results as the ranks compute them
    void *expected[WHOLE_TENSORS]; // results as the reference has them
};

// Shared memory for one request.
struct attend {
    struct whole_places places;
    int given_fd, wanted_fd, socket; // -1: none
    int64_t given_bytes, wanted_bytes;
};

// Copies the given tensors to shared memory and allocates memory for the wanted ones.
// INVALID_ARGUMENT: the case has no such tensor; RESOURCE_EXHAUSTED.
enum status attend_init(struct attend *a, const struct cp_case *c,
                        const struct attend_tensors *tensors, struct error *error) MUST_CHECK;
void attend_fini(struct attend *a);

// Hands the descriptors to the daemon that serves `address`, for the request with this id. The
// daemon keeps them while the connection lives. UNIMPLEMENTED: the address is one on a network;
// UNAVAILABLE: the daemon takes no descriptors, or none any more; or what it says.
enum status attend_hand_in(struct attend *a, const char *address, const struct request_id *id,
                           struct error *error) MUST_CHECK;

// Copies the wanted tensors to the caller's memory, after the request is answered. DATA_LOSS.
enum status attend_fetch(const struct attend *a, const struct cp_case *c,
                         const struct attend_tensors *tensors, struct error *error) MUST_CHECK;

// As cpattn_submit(), with tensors. The caller owns them and keeps them unchanged until the request
// is collected. Collecting fills the wanted tensors, only with STATUS_OK.
enum status attend_submit(struct cpattn_client *client, const struct cpattn_case *c,
                          const struct attend_tensors *tensors, uint64_t timeout_ns,
                          struct cpattn_request **request, struct error *error) MUST_CHECK;

#endif
