// SPDX-License-Identifier: Apache-2.0
#include "daemon/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_MAX 512

static bool address_set(struct notify *n, const char *path)
{
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof(n->address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return false;
    n->address.sun_family = AF_UNIX;
    memcpy(n->address.sun_path, path, length);
    if (path[0] == '@')
        n->address.sun_path[0] = '\0'; // an abstract name
    n->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

static uint64_t watchdog_read(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtol(pid, NULL, 10) != getpid()))
        return 0;
    return strtoull(usec, NULL, 10) * 1000;
}

void notify_init(struct notify *n)
{
    memset(n, 0, sizeof(*n));
    n->fd = -1;
    if (address_set(n, getenv("NOTIFY_SOCKET"))) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        n->watchdog_ns = watchdog_read();
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_fini(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}

void notify_send(const struct notify *n, const char *format, ...)
{
    char message[MESSAGE_MAX];
    if (n->fd < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof(message))
        sendto(n->fd, message, (size_t)length, MSG_NOSIGNAL, (const struct sockaddr *)&n->address,
               n->address_bytes);
}
