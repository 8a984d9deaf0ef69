// SPDX-License-Identifier: Apache-2.0
// Why a daemon cannot be reached, and what to do.
#ifndef CPATTN_CLIENT_LINK_REFUSALS_H
#define CPATTN_CLIENT_LINK_REFUSALS_H

#include "common/status.h"

// UNAVAILABLE: nothing listens at a path or URL.
enum status link_refuse_unreachable(const char *path, struct error *error);

// PERMISSION_DENIED: this user may not connect to the socket. Names the group whose members may.
enum status link_refuse_user(const char *path, struct error *error);

#endif
