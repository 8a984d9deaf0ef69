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
// Network clients are neither users of this machine nor administrators. Each certificate subject is
// a user of its own (daemon/net/subjects.h). All network clients without one together are this
// user and share its limits.
#define PEER_REMOTE_UID  ((uid_t)-2)

struct peer {
    uint32_t client;                // number of the connection, never 0
    uid_t uid;                      // over a network: PEER_REMOTE_UID, or the number of a subject
    pid_t pid;                      // 0: over a network
    char address[PEER_ADDRESS_MAX]; // "": through the unix socket
    char subject[SUBJECT_TEXT_MAX]; // of the certificate that the client has shown, or ""
};

// Fills in the peer of a unix socket from SO_PEERCRED. False: the kernel does not report it, or its
// uid is in the range of subjects (SUBJECT_UID_FIRST).
bool peer_local(int fd, struct peer *peer);

// Fills in a network peer: its address, and uid PEER_REMOTE_UID.
void peer_remote(const struct sockaddr_storage *address, struct peer *peer);

bool peer_is_remote(const struct peer *peer);

// True for local users and for network clients with a certificate subject.
bool peer_is_known(const struct peer *peer);

// Identity for turns and limits: the user's number; for unknown peers a hash of the host's address.
uint64_t peer_key(const struct peer *peer);

// Writes and returns the peer for the log: uid=1000 pid=4242, address=192.0.2.7:50000, or
// address=192.0.2.7:50000 subject="CN=alice,O=Lab".
#define PEER_TEXT_MAX (2 * SUBJECT_TEXT_MAX + 96)
const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX]);

// Writes and returns the peer for other users: uid=1000, network, or subject="CN=alice,O=Lab".
const char *peer_describe_user(const struct peer *peer, char text[PEER_TEXT_MAX]);

#endif
