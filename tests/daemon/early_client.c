// SPDX-License-Identifier: Apache-2.0
// Clients that leave early: early_client SOCKET COUNT WHEN.
// - dial: they leave while connecting. In turn: connect and close; the same, non-blocking; and
//   clients of the library, each in its own process, that close, exit or are killed.
// - request: they leave in the middle of a request.
// - flood: one client sends requests and reads without end.
#include <errno.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/wire.h"

static void connect_and_close(const char *path, int flags)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    // It may succeed or fail.
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0)
        usleep(1000);
    close(fd);
}

static void dial_and(const char *path, int end)
{
    char url[128];
    nng_socket client;
    snprintf(url, sizeof(url), "ipc://%s", path);
    if (nng_req0_open(&client) != 0)
        _exit(1);
    nng_dial(client, url, NULL, NNG_FLAG_NONBLOCK);
    if (end == 0)
        nng_close(client);
    if (end == 2)
        raise(SIGKILL);
    _exit(0);
}

static bool dial_once(const char *path, int kind)
{
    if (kind < 2) {
        connect_and_close(path, kind ? SOCK_NONBLOCK : 0);
        return true;
    }
    pid_t pid = fork();
    if (pid == 0)
        dial_and(path, kind - 2);
    return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

// Encodes a status request as a frame: type, length, number of the request with the top bit set,
// request. Returns the size; 0: it cannot be encoded.
static size_t frame_encode(uint8_t frame[128])
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_STATUS};
    struct error error;
    void *data;
    size_t size;
    request.id.bytes[0] = 1;
    if (wire_encode_request(&request, &data, &size, &error) != STATUS_OK || size > 100)
        return 0;
    memset(frame, 0, 13);
    memcpy(frame + 13, data, size);
    free(data);
    frame[0] = 1;
    frame[8] = (uint8_t)(size + 4);
    frame[9] = 0x80;
    return size + 13;
}

// Connects and exchanges greetings; -1: it failed.
static int greet(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char greeting[8];
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0 &&
        send(fd, "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL) == 8 &&
        recv(fd, greeting, 8, MSG_WAITALL) == 8)
        return fd;
    close(fd);
    return -1;
}

// Until the daemon notices the end of many connections, it closes new ones at once.
static int greet_patiently(const char *path)
{
    int fd = greet(path);
    for (int tries = 0; fd < 0 && tries < 1000; tries++) {
        usleep(10000);
        fd = greet(path);
    }
    return fd;
}

static bool request_once(const char *path)
{
    uint8_t frame[128];
    size_t size = frame_encode(frame);
    int fd = greet_patiently(path);
    bool sent = size > 0 && fd >= 0;
    for (int i = 0; sent && i < 4; i++)
        sent = send(fd, frame, i < 3 ? size : size - 13, MSG_NOSIGNAL) > 0;
    close(fd);
    return sent;
}

// Until it is killed, or the connection ends.
static bool flood(const char *path)
{
    static uint8_t frames[128 * 64], replies[1 << 16];
    size_t size = frame_encode(frames);
    for (size_t i = 1; i < 64; i++)
        memcpy(frames + i * size, frames, size);
    int fd = greet(path);
    while (fd >= 0) {
        ssize_t sent = send(fd, frames, 64 * size, MSG_NOSIGNAL | MSG_DONTWAIT);
        ssize_t got = recv(fd, replies, sizeof(replies), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN) || (sent < 0 && errno != EAGAIN))
            break;
        // The rest of a frame that was sent in part must follow.
        if (sent > 0 && (size_t)sent % size != 0)
            send(fd, frames + (size_t)sent % size, size - (size_t)sent % size, MSG_NOSIGNAL);
    }
    return false;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 64;
    bool dial = strcmp(argv[3], "dial") == 0;
    if (strcmp(argv[3], "flood") == 0)
        return !flood(argv[1]);
    for (int i = 0, count = atoi(argv[2]); i < count; i++) {
        if (dial ? !dial_once(argv[1], i % 5) : !request_once(argv[1]))
            return 1;
    }
    return 0;
}
