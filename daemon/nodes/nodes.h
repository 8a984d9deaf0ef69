// SPDX-License-Identifier: Apache-2.0
// The daemon's side of the connections to agents on its other hosts: accepts the agents, orders
// them to start and kill ranks, and reports the events of these ranks to the crews. All calls on
// the loop's thread.
#ifndef CPATTN_DAEMON_NODES_NODES_H
#define CPATTN_DAEMON_NODES_NODES_H

#include <ev.h>

#include "common/limits.h"
#include "common/status.h"
#include "common/token.h"
#include "daemon/pool/crew.h"

// Maximum number of connections without a valid HELLO, in total and from one address, so that no
// other host keeps an agent out. Further connections are closed at once.
#define NODES_CALLERS_MAX         16
#define NODES_CALLERS_ADDRESS_MAX 8
// Time limit of the HELLO in seconds.
#define NODES_CALLER_S            5.

struct nodes_config {
    int count; // number of hosts, including this one, which is the first
    struct {
        char name[HOST_NAME_BYTES];
        int device_count;
    } hosts[HOSTS_MAX];
    const char *backend;      // backend that agents must have; borrowed
    int fd;                   // listening socket for agents, non-blocking; borrowed
    struct token token;       // token that agents must present
    struct tls *tls;          // from tls_create(); NULL: not encrypted; borrowed
    const char *mesh_address; // numeric address for connections from ranks of other hosts; NULL:
                              // all addresses
    int mesh_port;            // 0: any free port
};

struct nodes_handler {
    void *context;
    // The agent of a host is lost. Called before crews_host_lost().
    void (*lost)(void *context, int host, const struct error *error);
    // An agent is connected. No earlier rank is alive on its host.
    void (*back)(void *context, int host);
};

struct nodes;

// Call nodes_join() before the loop runs. UNAVAILABLE, RESOURCE_EXHAUSTED.
enum status nodes_create(struct ev_loop *loop, const struct nodes_config *config,
                         const struct nodes_handler *handler, struct nodes **nodes,
                         struct error *error) MUST_CHECK;

// Sets token and TLS of future connections. The TLS is borrowed, and must not be NULL if there was
// TLS before. The caller may release the old one: open connections hold references.
void nodes_set_access(struct nodes *nodes, const struct token *token, struct tls *tls);

// Closes the connections, after which the agents kill their ranks. Accepts NULL.
void nodes_destroy(struct nodes *nodes);

// Connects nodes and crews: the crews get the events of ranks, and call the nodes for ranks on
// other hosts. Destroy the crews before the nodes.
void nodes_join(struct nodes *nodes, struct crews *crews);

// Number of hosts with a connected agent, including this one.
int nodes_there(const struct nodes *nodes);

#endif
