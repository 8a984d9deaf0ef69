// SPDX-License-Identifier: Apache-2.0
// What the parts of the fake client share.
#ifndef CPATTN_TESTS_SUBMIT_FAKE_CLIENT_H
#define CPATTN_TESTS_SUBMIT_FAKE_CLIENT_H

#include "client/cpattn.h"

// Sets `error`, which may be NULL, and returns its status.
enum cpattn_status fake_error(struct cpattn_error *error, enum cpattn_status status,
                              const char *text);

// The longest time limit of a request (FAKE_TIMEOUT_MAX_S in the environment).
uint64_t fake_timeout_max_ns(void);

#endif
