// SPDX-License-Identifier: Apache-2.0
// The tensors of a request, in the caller's memory and in shared memory. Shared memory carries them
// to the ranks and back. Its descriptors are sent to the daemon separately from the request
// (common/deposit.h).
#ifndef CPATTN_CLIENT_ATTEND_MEMORY_H
#define CPATTN_CLIENT_ATTEND_MEMORY_H

#include "plan/places.h"
#include "proto/wire.h"

// Tensors by enum whole_tensor, dense, in the caller's memory; NULL: none.
struct attend_tensors {
    const void *given[WHOLE_INPUTS];
    void *wanted[WHOLE_TENSORS];   // inputs and results, as the ranks have them
    void *expected[WHOLE_TENSORS]; // results of the reference
};

// Shared memory for one request.
struct attend_memory {
    struct whole_places places;      // offsets of the tensors in the two memories
    int given_fd, wanted_fd, socket; // inputs; wanted tensors; to the daemon; -1: none
    int64_t given_bytes, wanted_bytes;
};

// Copies the given tensors to shared memory and allocates memory for the wanted ones.
// INVALID_ARGUMENT: the case has no such tensor; RESOURCE_EXHAUSTED.
enum status attend_memory_init(struct attend_memory *a, const struct cp_case *c,
                               const struct attend_tensors *tensors,
                               struct error *error) MUST_CHECK;
void attend_memory_fini(struct attend_memory *a);

// Hands the descriptors to the daemon that serves `address`, for the request with this id. The
// daemon keeps them while the connection lives. UNIMPLEMENTED: the address is a network address;
// UNAVAILABLE: the daemon accepts no descriptors, or no more of them; else the daemon's status.
enum status attend_memory_hand_in(struct attend_memory *a, const char *address,
                                  const struct request_id *id, struct error *error) MUST_CHECK;

// Copies the wanted tensors to the caller's memory, after the request is answered. DATA_LOSS.
enum status attend_memory_fetch(const struct attend_memory *a, const struct cp_case *c,
                                const struct attend_tensors *tensors,
                                struct error *error) MUST_CHECK;

#endif
