// SPDX-License-Identifier: Apache-2.0
// Requests with tensors of the caller.
#ifndef CPATTN_CLIENT_REQUEST_H
#define CPATTN_CLIENT_REQUEST_H

#include "client/attend_memory.h"
#include "client/client.h"

// Like cpattn_submit(), with tensors; but cpattn_wait_any() does not return the request. The caller
// owns the tensors and keeps them unchanged until the request is collected. Collecting fills the
// wanted tensors, only with STATUS_OK.
enum status request_attend(struct cpattn_client *client, const struct cpattn_case *c,
                           const struct attend_tensors *tensors, uint64_t timeout_ns,
                           struct cpattn_request **request, struct error *error) MUST_CHECK;

#endif
