// SPDX-License-Identifier: Apache-2.0
// Clients that go away in the middle of connecting: early_client SOCKET COUNT. Each in a process of
// its own, in turn: a bare connect and close, the same non-blocking, and clients of the library
// that close, exit or are killed while they dial.
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void connect_and_close(const char *path, int flags)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    // Whether it succeeds is all the same here.
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

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    for (int i = 0, count = atoi(argv[2]); i < count; i++) {
        int kind = i % 5;
        if (kind < 2) {
            connect_and_close(argv[1], kind ? SOCK_NONBLOCK : 0);
            continue;
        }
        pid_t pid = fork();
        if (pid == 0)
            dial_and(argv[1], kind - 2);
        if (pid < 0 || waitpid(pid, NULL, 0) != pid)
            return 1;
    }
    return 0;
}
