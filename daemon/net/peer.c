// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"
#include "daemon/net/subjects.h"

bool peer_local(int fd, struct peer *peer)
{
    struct ucred credentials = {.uid = (uid_t)-1};
    socklen_t size = sizeof(credentials);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
                 credentials.uid < SUBJECT_UID_FIRST;
    *peer = (struct peer){.uid = credentials.uid, .pid = credentials.pid};
    return known;
}

// Converts the mapped address of an IPv4 client of an IPv6 socket.
static bool mapped_take(const struct sockaddr_in6 *v6, struct sockaddr_in *v4)
{
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    if (mapped)
        memcpy(&v4->sin_addr, v6->sin6_addr.s6_addr + 12, sizeof(v4->sin_addr));
    v4->sin_port = v6->sin6_port;
    return mapped;
}

void peer_remote(const struct sockaddr_storage *address, struct peer *peer)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    *peer = (struct peer){.uid = PEER_REMOTE_UID};
    memcpy(&v4, address, sizeof(v4));
    memcpy(&v6, address, sizeof(v6));
    if (address->ss_family == AF_INET6 && !mapped_take(&v6, &v4)) {
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
        snprintf(peer->address, sizeof(peer->address), "[%s]:%u", text, ntohs(v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
        snprintf(peer->address, sizeof(peer->address), "%s:%u", text, ntohs(v4.sin_port));
    }
}

bool peer_is_remote(const struct peer *peer)
{
    return peer->address[0] != '\0';
}

bool peer_is_known(const struct peer *peer)
{
    return peer->uid != PEER_REMOTE_UID;
}

uint64_t peer_key(const struct peer *peer)
{
    const char *port = strrchr(peer->address, ':');
    uint64_t hash = UINT64_C(0xcbf29ce484222325); // FNV-1a
    if (peer_is_known(peer))
        return peer->uid;
    for (const char *at = peer->address; at != port && *at; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    return hash;
}

const char *peer_describe(const struct peer *peer, char text[PEER_TEXT_MAX])
{
    if (peer->subject[0])
        snprintf(text, PEER_TEXT_MAX, "address=%s subject=%s", peer->address,
                 log_quote(&(struct log_quoted){0}, peer->subject));
    else if (peer_is_remote(peer))
        snprintf(text, PEER_TEXT_MAX, "address=%s", peer->address);
    else
        snprintf(text, PEER_TEXT_MAX, "uid=%d pid=%d", (int)peer->uid, (int)peer->pid);
    return text;
}

const char *peer_describe_user(const struct peer *peer, char text[PEER_TEXT_MAX])
{
    if (peer->subject[0])
        snprintf(text, PEER_TEXT_MAX, "subject=%s",
                 log_quote(&(struct log_quoted){0}, peer->subject));
    else if (peer_is_remote(peer))
        snprintf(text, PEER_TEXT_MAX, "network");
    else
        snprintf(text, PEER_TEXT_MAX, "uid=%d", (int)peer->uid);
    return text;
}
