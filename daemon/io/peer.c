// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

bool peer_local(int fd, struct peer *peer)
{
    struct ucred credentials = {.uid = (uid_t)-1};
    socklen_t size = sizeof(credentials);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
    *peer = (struct peer){.uid = credentials.uid, .pid = credentials.pid};
    return known;
}

void peer_remote(const struct sockaddr_storage *address, struct peer *peer)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    *peer = (struct peer){.uid = PEER_REMOTE_UID};
    if (address->ss_family == AF_INET6) {
        memcpy(&v6, address, sizeof(v6));
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
        snprintf(peer->address, sizeof(peer->address), "[%s]:%u", text, ntohs(v6.sin6_port));
    } else {
        memcpy(&v4, address, sizeof(v4));
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
        snprintf(peer->address, sizeof(peer->address), "%s:%u", text, ntohs(v4.sin_port));
    }
}

bool peer_is_remote(const struct peer *peer)
{
    return peer->address[0] != '\0';
}

const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX])
{
    if (peer_is_remote(peer))
        snprintf(text, PEER_TEXT_MAX, "address=%s", peer->address);
    else
        snprintf(text, PEER_TEXT_MAX, "uid=%d pid=%d", (int)peer->uid, (int)peer->pid);
    return text;
}
