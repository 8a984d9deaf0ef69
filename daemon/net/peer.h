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
// Network clients are no users of this machine and no administrators. A client with a certificate
// is a user of its own (daemon/net/subjects.h). All others together are this user and share its
// limits.
#define PEER_REMOTE_UID  ((uid_t)-2)

struct peer {
    uint32_t client;                // number of the connection, never 0
    uid_t uid;                      // over a network: PEER_REMOTE_UID, or the number of a subject
    pid_t pid;                      // 0: over a network
    char address[PEER_ADDRESS_MAX]; // "": through the unix socket
    char subject[SUBJECT_TEXT_MAX]; // of the certificate that the client has shown, or ""
};

// Fills in the peer of a unix socket, as the kernel reports it. False: the kernel does not, or
// reports a number that is no user.
bool peer_local(int fd, struct peer *peer);

// Fills in the peer at this address.
void peer_remote(const struct sockaddr_storage *address, struct peer *peer);

bool peer_is_remote(const struct peer *peer);

// True if the peer can be distinguished from other users.
bool peer_is_known(const struct peer *peer);

// Identity for turns and limits: the user, or the host of an unknown one.
uint64_t peer_key(const struct peer *peer);

// For the log: "uid=1000 pid=4242", "address=192.0.2.7:50000", or that with
// subject="CN=alice,O=Lab" behind it.
#define PEER_TEXT_MAX (2 * SUBJECT_TEXT_MAX + 96)
const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX]);

// For others: "uid=1000", "network", or subject="CN=alice,O=Lab".
const char *peer_describe_user(const struct peer *peer, char text[PEER_TEXT_MAX]);

#endif
