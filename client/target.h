// SPDX-License-Identifier: Apache-2.0
// Where a client connects to, and what it presents there.
#ifndef CPATTN_CLIENT_TARGET_H
#define CPATTN_CLIENT_TARGET_H

#include "client/cpattn.h"
#include "client/link.h"
#include "common/token.h"

// The address given, else that of the environment, else the one built in. INVALID_ARGUMENT.
enum status target_address(const char *given, struct link_target *target,
                           struct error *error) MUST_CHECK;

// Reads the token and, for tls+tcp://, makes the target's TLS, of files that are given or that the
// environment names; a unix socket needs neither. INVALID_ARGUMENT: a file is missing, or not what
// it should be; PERMISSION_DENIED: everybody can read a secret; or what link_tls_create() says.
// Nothing is left to be freed then.
enum status target_secrets(const struct cpattn_options *options, struct link_target *target,
                           struct token *token, struct error *error) MUST_CHECK;

#endif
