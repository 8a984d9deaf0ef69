// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

void accept_options_set(int fd)
{
    const int on = 1, idle_s = 30, interval_s = 10, probes = 3, unacknowledged_ms = 30000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

bool accept_error_is_theirs(void)
{
    static const int theirs[] = {EINTR,     ECONNABORTED, EPROTO,      ENETDOWN,
                                 EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ENONET};
    for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++) {
        if (errno == theirs[i])
            return true;
    }
    return false;
}
