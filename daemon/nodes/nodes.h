// SPDX-License-Identifier: Apache-2.0
// The daemon's side of its other hosts: accepts their agents, orders ranks from them, and reports
// to the crews. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NODES_NODES_H
#define CPATTN_DAEMON_NODES_NODES_H

#include <ev.h>

#include "common/limits.h"
#include "common/status.h"
#include "common/token.h"
#include "daemon/pool/crew.h"

// Connections that have not identified themselves; further ones are closed at once.
#define NODES_CALLERS_MAX 16
// Time limit for that.
#define NODES_CALLER_S    5.

struct nodes_config {
    int count; // hosts, this one included, which is the first
    struct {
        char name[HOST_NAME_BYTES];
        int device_count;
    } hosts[HOSTS_MAX];
    const char *backend;      // that agents must have; borrowed
    int fd;                   // listens for agents and does not block; borrowed
    struct token token;       // that agents must present
    struct tls *tls;          // of tls_create(), NULL: nothing is encrypted; borrowed
    const char *mesh_address; // numeric; ranks of other hosts reach those here at it. NULL: all
    int mesh_port;            // 0: any
};

struct nodes_handler {
    void *context;
    // Called before the crews are told (crews_host_lost()).
    void (*lost)(void *context, int host, const struct error *error);
    // An agent is connected. No earlier rank is alive on its host.
    void (*back)(void *context, int host);
};

struct nodes;

// `crews` may be set later, before the loop runs. UNAVAILABLE, RESOURCE_EXHAUSTED.
enum status nodes_create(struct ev_loop *loop, const struct nodes_config *config,
                         const struct nodes_handler *handler, struct nodes **nodes,
                         struct error *error) MUST_CHECK;

// For future connections; with TLS before, never NULL. The one before may be released.
void nodes_set_tls(struct nodes *nodes, struct tls *tls);

// Agents kill their ranks when their connection ends. Takes NULL.
void nodes_destroy(struct nodes *nodes);

// Connects the two. Call nodes_destroy() after the last call of a crew.
void nodes_join(struct nodes *nodes, struct crews *crews);

// Hosts that have an agent, this one included.
int nodes_there(const struct nodes *nodes);

#endif
