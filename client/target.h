// SPDX-License-Identifier: Apache-2.0
// The daemon that a client connects to, with token and TLS configuration.
#ifndef CPATTN_CLIENT_TARGET_H
#define CPATTN_CLIENT_TARGET_H

#include "client/cpattn.h"
#include "client/link.h"
#include "common/token.h"

// The given address, else that in the environment, else the built-in one. An empty variable counts
// as not set. INVALID_ARGUMENT.
enum status target_address(const char *given, struct link_target *target,
                           struct error *error) MUST_CHECK;

// Reads the token and, for tls+tcp://, creates the TLS configuration, from the given files or those
// that the environment names; a unix socket needs neither. INVALID_ARGUMENT: a file is missing or
// invalid; PERMISSION_DENIED: everybody can read a secret; or the status of link_tls_create(). On
// failure there is nothing to free.
enum status target_secrets(const struct cpattn_options *options, struct link_target *target,
                           struct token *token, struct error *error) MUST_CHECK;

#endif
