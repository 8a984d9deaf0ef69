// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <nng/transport/ipc/ipc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define SOCKET_MODE 0660
#define FD_SCAN_MAX 65536

static void lock_path(const struct listener *l, char *text, size_t size)
{
    snprintf(text, size, "%s.lock", l->path);
}

// The lock file may have been removed by a daemon that ended between our open() and flock(); a lock
// on a file without a name protects nothing.
static bool lock_is_current(int fd, const char *path)
{
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

static enum status lock_refused(const struct listener *l, int fd, struct error *error)
{
    char pid[16] = "";
    ssize_t length = pread(fd, pid, sizeof(pid) - 1, 0);
    pid[length > 0 ? length : 0] = '\0';
    int number = atoi(pid);
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "another cpattnd (process %d) serves %s already; stop it, or choose another "
                     "path with --socket",
                     number, l->path);
}

static enum status lock_take(struct listener *l, struct error *error)
{
    char path[LISTENER_PATH_MAX + 8];
    lock_path(l, path, sizeof(path));
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return error_set(error, STATUS_UNAVAILABLE,
                             "cannot create %s: %s; make the directory writable, or choose another "
                             "path with --socket",
                             path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            enum status status = errno == EWOULDBLOCK
                                     ? lock_refused(l, fd, error)
                                     : error_set(error, STATUS_UNAVAILABLE, "cannot lock %s: %s",
                                                 path, strerror(errno));
            close(fd);
            return status;
        }
        if (lock_is_current(fd, path)) {
            l->lock_fd = fd;
            break;
        }
        close(fd);
    }
    if (ftruncate(l->lock_fd, 0) != 0 || dprintf(l->lock_fd, "%d\n", (int)getpid()) < 0)
        log_warning("lock_note path=%s error=\"%s\"", path, strerror(errno));
    return STATUS_OK;
}

static enum status leftover_remove(const char *path, struct error *error)
{
    struct stat stat;
    if (lstat(path, &stat) != 0)
        return STATUS_OK;
    if (!S_ISSOCK(stat.st_mode))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s exists and is not a socket; choose another path with --socket", path);
    if (unlink(path) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot remove the leftover socket %s: %s",
                         path, strerror(errno));
    return STATUS_OK;
}

enum status listener_init(struct listener *l, const char *path, struct error *error)
{
    memset(l, 0, sizeof(*l));
    l->lock_fd = -1;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(l->path))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the socket path has %zu bytes, a unix socket takes 1 to %zu: %s", length,
                         sizeof(l->path) - 1, path);
    memcpy(l->path, path, length + 1);
    enum status status = lock_take(l, error);
    if (status == STATUS_OK)
        status = leftover_remove(l->path, error);
    if (status != STATUS_OK)
        listener_fini(l);
    return status;
}

static bool fd_known(const struct listener *l, int fd)
{
    for (int i = 0; i < l->count; i++) {
        if (l->fds[i] == fd)
            return true;
    }
    return false;
}

static bool fd_listens_here(const struct listener *l, int fd)
{
    struct sockaddr_un name;
    socklen_t length = sizeof(name);
    int listening = 0;
    socklen_t size = sizeof(listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening)
        return false;
    return getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.sun_family == AF_UNIX &&
           strncmp(name.sun_path, l->path, sizeof(name.sun_path)) == 0;
}

// nng does not tell the descriptor of a listener; it is the one listening socket of this name that
// was not there before.
static int fd_find(const struct listener *l)
{
    for (int fd = 0, last = getdtablesize(); fd < last && fd < FD_SCAN_MAX; fd++) {
        if (fd_listens_here(l, fd) && !fd_known(l, fd))
            return fd;
    }
    return -1;
}

static enum status listen_once(struct listener *l, struct error *error)
{
    char url[LISTENER_PATH_MAX + 8];
    snprintf(url, sizeof(url), "ipc://%s", l->path);
    nng_listener listener;
    int result = nng_listener_create(&listener, l->socket, url);
    if (result == 0) {
        // Mode first: nng applies it between bind and listen, so the socket is never open to
        // others.
        result = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
        if (result == 0)
            result = nng_listener_start(listener, 0);
        if (result != 0)
            nng_listener_close(listener);
    }
    if (result != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot listen on %s: %s", l->path,
                         nng_strerror(result));
    l->fds[l->count] = fd_find(l);
    l->count++;
    return STATUS_OK;
}

enum status listener_open(struct listener *l, nng_socket socket, struct error *error)
{
    l->socket = socket;
    return listen_once(l, error);
}

bool listener_stuck(const struct listener *l)
{
    struct pollfd queue = {.fd = l->fds[l->count - 1], .events = POLLIN};
    return queue.fd < 0 || poll(&queue, 1, 0) != 0;
}

static void backlog_disconnect(int fd)
{
    int client;
    if (fd < 0 || !(fcntl(fd, F_GETFL) & O_NONBLOCK))
        return;
    while ((client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        close(client);
}

enum status listener_reopen(struct listener *l, struct error *error)
{
    if (l->count == LISTENERS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the listener on %s has died %d times; a restart is due", l->path,
                         LISTENERS_MAX);
    int dead = l->fds[l->count - 1];
    enum status status = leftover_remove(l->path, error);
    if (status == STATUS_OK)
        status = listen_once(l, error);
    if (status == STATUS_OK)
        backlog_disconnect(dead);
    return status;
}

void listener_fini(struct listener *l)
{
    if (!l->path[0] || l->lock_fd < 0)
        return;
    char path[LISTENER_PATH_MAX + 8];
    lock_path(l, path, sizeof(path));
    unlink(l->path);
    unlink(path);
    close(l->lock_fd);
    l->lock_fd = -1;
}
