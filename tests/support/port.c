// SPDX-License-Identifier: Apache-2.0
#include "tests/support/port.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST 20000
#define COUNT 12000
#define APART 37 // ports between the first choices of processes with consecutive numbers

static bool is_free(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return bound;
}

int port_free(void)
{
    static int next;
    for (int tried = 0; tried < COUNT; tried++) {
        int port = FIRST + ((int)(getpid() % COUNT) * APART + next++) % COUNT;
        if (is_free(port))
            return port;
    }
    fprintf(stderr, "no port from %d to %d is free\n", FIRST, FIRST + COUNT - 1);
    abort();
}
