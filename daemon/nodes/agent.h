// SPDX-License-Identifier: Apache-2.0
// The agent: starts ranks for a daemon on another host and reports on them, over one connection to
// the daemon. It makes no decisions. When the connection is closed, broken or silent for 3 s, the
// agent kills its ranks. It connects again when all of them are reaped.
#ifndef CPATTN_DAEMON_NODES_AGENT_H
#define CPATTN_DAEMON_NODES_AGENT_H

#include <ev.h>

#include "common/net_url.h"
#include "common/token.h"
#include "daemon/machine/backend.h"
#include "daemon/net/tls.h"
#include "daemon/nodes/node_wire.h"

struct agent_config {
    struct net_url daemon;
    char daemon_text[NET_URL_TEXT_MAX];
    char name[HOST_NAME_BYTES];
    struct token token;
    // Files that are read again before each connection; borrowed. `tls_files` is not used without
    // `tls`.
    const char *token_file;
    struct tls_connect_files tls_files;
    struct tls *tls;               // from tls_files; NULL: not encrypted. The agent holds it
    const struct backend *backend; // borrowed
    const char *mesh_address; // numeric address for connections from ranks of other hosts; NULL:
                              // the address that the daemon sees
    int mesh_port;            // 0: any free port
};

struct agent;

// Begins to connect once the loop runs. UNAVAILABLE, RESOURCE_EXHAUSTED. Call on the main thread,
// before other threads exist.
enum status agent_create(struct ev_loop *loop, const struct agent_config *config,
                         struct agent **agent, struct error *error) MUST_CHECK;

// Kills and reaps all ranks; logs and leaves those that cannot be reaped within 2 s. Accepts NULL.
void agent_destroy(struct agent *agent);

#endif
