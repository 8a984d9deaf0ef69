// SPDX-License-Identifier: Apache-2.0
// Functions that both files of the fake client use.
#ifndef CPATTN_TESTS_SUBMIT_FAKE_CLIENT_H
#define CPATTN_TESTS_SUBMIT_FAKE_CLIENT_H

#include "client/cpattn.h"

// Sets `error`, which may be NULL, and returns its status.
enum cpattn_status fake_error(struct cpattn_error *error, enum cpattn_status status,
                              const char *text);

// Returns the longest time limit of a request in ns; FAKE_TIMEOUT_MAX_S in the environment sets it.
uint64_t fake_timeout_max_ns(void);

#endif
