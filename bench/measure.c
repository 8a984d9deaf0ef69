// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACKET_BYTES 200

double measure_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_quantile(double *values, int count, double part)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[(int)((count - 1) * part)];
}

bool echo_start(struct echo *echo)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    echo->pid = fork();
    if (echo->pid == 0) {
        char packet[PACKET_BYTES];
        close(ends[0]);
        for (ssize_t got; (got = recv(ends[1], packet, sizeof(packet), 0)) > 0;)
            send(ends[1], packet, (size_t)got, MSG_NOSIGNAL);
        _exit(0);
    }
    close(ends[1]);
    echo->fd = ends[0];
    return echo->pid > 0;
}

void echo_end(struct echo *echo)
{
    close(echo->fd);
    waitpid(echo->pid, NULL, 0);
}

double echo_once(const struct echo *echo)
{
    char packet[PACKET_BYTES] = {0};
    double began_us = measure_now_us();
    if (send(echo->fd, packet, sizeof(packet), MSG_NOSIGNAL) < 0 ||
        recv(echo->fd, packet, sizeof(packet), 0) != (ssize_t)sizeof(packet))
        return -1;
    return measure_now_us() - began_us;
}
