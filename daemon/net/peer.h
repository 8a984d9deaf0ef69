// SPDX-License-Identifier: Apache-2.0
// The identity of a connection's peer.
#ifndef CPATTN_DAEMON_NET_PEER_H
#define CPATTN_DAEMON_NET_PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/settings/subject_list.h"

// "[ADDRESS]:PORT" with its NUL.
#define PEER_ADDRESS_MAX (INET6_ADDRSTRLEN + 8)
// Whoever comes over a network has no user here, and rules over nobody. Who has shown a certificate
// is a user of their own (daemon/net/subjects.h). All others are this one; whatever a user has a
// share of they have together.
#define PEER_REMOTE_UID  ((uid_t)-2)

struct peer {
    uint32_t client;                // number of the connection, never 0
    uid_t uid;                      // over a network PEER_REMOTE_UID or that of a subject
    pid_t pid;                      // 0: over a network
    char address[PEER_ADDRESS_MAX]; // "": through the unix socket
    char subject[SUBJECT_TEXT_MAX]; // of the certificate that was asked for and shown, or ""
};

// Fills in who has connected to a unix socket, as the kernel knows it; false: it does not, or says
// a number that is of no user.
bool peer_local(int fd, struct peer *peer);

// Fills in who has connected from this address.
void peer_remote(const struct sockaddr_storage *address, struct peer *peer);

bool peer_is_remote(const struct peer *peer);

// Whether it is a user who can be told from others.
bool peer_is_known(const struct peer *peer);

// Who it is, as far as it is known: the user, or else the host that it comes from.
uint64_t peer_key(const struct peer *peer);

// For the log: "uid=1000 pid=4242", "address=192.0.2.7:50000", or that with
// subject="CN=alice,O=Lab" behind it.
#define PEER_TEXT_MAX (2 * SUBJECT_TEXT_MAX + 96)
const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX]);

// For others: "uid=1000", "network", or subject="CN=alice,O=Lab".
const char *peer_describe_user(const struct peer *peer, char text[PEER_TEXT_MAX]);

#endif
