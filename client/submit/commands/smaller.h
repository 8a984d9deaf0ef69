// SPDX-License-Identifier: Apache-2.0
// Looks for the smallest case that fails as a given one does.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_SMALLER_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_SMALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cpattn.h"
#include "client/submit/outcome/outcome.h"
#include "plan/case.h"

// The search, and the answer of the smallest case.
struct smaller {
    struct cpattn_client *client; // borrowed
    uint64_t timeout_ns;          // of each run

    struct cp_case c;             // the smallest that fails
    struct outcome outcome;       // of `c`, if `found`
    struct cpattn_result *result; // of `c`, or NULL
    int tried;                    // cases that were run
    bool found;                   // a smaller case than the given one fails
    bool lost;                    // the daemon does not answer, which ended the search
};

// Runs smaller cases, up to SMALLER_TRIES, an interrupt, or the loss of the daemon. A case fails as
// the given one does if both verdicts are a fail and the given one's diagnosis, if it has one, is
// that of both, or if both end with the same status; with UNKNOWN their sentences must also be the
// same. Numbers and places may differ. Call smaller_fini() in any case.
#define SMALLER_TRIES 500
void smaller_find(struct smaller *search, struct cpattn_client *client, const struct cp_case *c,
                  const struct outcome *given, uint64_t timeout_ns);
void smaller_fini(struct smaller *search);

#endif
