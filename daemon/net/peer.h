// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection.
#ifndef CPATTN_DAEMON_NET_PEER_H
#define CPATTN_DAEMON_NET_PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// "[ADDRESS]:PORT" with its NUL.
#define PEER_ADDRESS_MAX (INET6_ADDRSTRLEN + 8)
// Whoever comes over a network has no user here. All of them are this one, who rules over nobody;
// whatever a user has a share of they have together.
#define PEER_REMOTE_UID  ((uid_t)-2)

struct peer {
    uint32_t client;                // number of the connection, never 0
    uid_t uid;                      // PEER_REMOTE_UID: over a network
    pid_t pid;                      // 0: over a network
    char address[PEER_ADDRESS_MAX]; // "": through the unix socket
};

// Fills in who has connected to a unix socket, as the kernel knows it; false: it does not.
bool peer_local(int fd, struct peer *peer);

// Fills in who has connected from this address.
void peer_remote(const struct sockaddr_storage *address, struct peer *peer);

bool peer_is_remote(const struct peer *peer);

// For the log: "uid=1000 pid=4242", or "address=192.0.2.7:50000".
#define PEER_TEXT_MAX 80
const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX]);

#endif
