// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define SOCKET_MODE 0660

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

// Advice for the user if the file at a path cannot be created.
static const char *advice(int error, const char *path)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "create the directory";
    case EACCES:
        if (access(path, F_OK) == 0)
            return "remove this file of another user";
        return "make the directory writable";
    case EROFS:
        return "make the directory writable";
    case ENOSPC:
    case EDQUOT:
        return "free space there";
    default:
        return "repair this";
    }
}

static enum status path_refused(const char *what, const char *path, int number, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "cannot %s %s: %s; %s, or choose another path with --socket", what, path,
                     strerror(number), advice(number, path));
}

static enum status lock_take(struct listener *l, struct error *error)
{
    char path[LISTENER_PATH_MAX + 8];
    lock_path(l, path, sizeof(path));
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return path_refused("create", path, errno, error);
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
        log_warning("lock_note path=%s error=\"%s\"", log_quote(&(struct log_quoted){0}, path),
                    strerror(errno));
    return STATUS_OK;
}

// OK if no program listens on the unix socket, whether it is a stream socket or of another type.
static enum status check_unserved(const char *path, struct error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool connected = fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    int number = connected ? 0 : errno;
    if (fd >= 0)
        close(fd);
    if (number == ECONNREFUSED)
        return STATUS_OK;
    if (number == 0 || number == EAGAIN || number == EPROTOTYPE)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "another program listens on %s; choose another path with --socket", path);
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "another program may listen on %s, which cannot be asked: %s; choose another "
                     "path with --socket, or remove it",
                     path, strerror(number));
}

enum status listener_leftover_remove(const char *path, struct error *error)
{
    struct stat stat;
    if (lstat(path, &stat) != 0)
        return STATUS_OK;
    if (!S_ISSOCK(stat.st_mode))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s exists and is not a socket; choose another path with --socket", path);
    enum status status = check_unserved(path, error);
    if (status != STATUS_OK)
        return status;
    if (unlink(path) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot remove the leftover socket %s: %s",
                         path, strerror(errno));
    return STATUS_OK;
}

enum status listener_init(struct listener *l, const char *path, struct error *error)
{
    memset(l, 0, sizeof(*l));
    l->lock_fd = l->fd = -1;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(l->path))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the socket path has %zu bytes, a unix socket takes 1 to %zu; choose a "
                         "shorter path with --socket: %s",
                         length, sizeof(l->path) - 1, path);
    memcpy(l->path, path, length + 1);
    enum status status = lock_take(l, error);
    if (status == STATUS_OK)
        status = listener_leftover_remove(l->path, error);
    if (status != STATUS_OK)
        listener_fini(l);
    return status;
}

enum status listener_open(struct listener *l, struct error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, l->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // The file is created with its final mode, so that other users can never open it.
    mode_t mask = umask(0777 & ~SOCKET_MODE);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    umask(mask);
    if (!bound || listen(fd, SOMAXCONN) != 0) {
        enum status status = path_refused("listen on", l->path, errno, error);
        if (bound)
            unlink(l->path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    l->fd = fd;
    return STATUS_OK;
}

void listener_fini(struct listener *l)
{
    if (!l->path[0] || l->lock_fd < 0)
        return;
    char path[LISTENER_PATH_MAX + 8];
    lock_path(l, path, sizeof(path));
    if (l->fd >= 0) {
        unlink(l->path);
        close(l->fd);
    }
    unlink(path);
    close(l->lock_fd);
    l->fd = l->lock_fd = -1;
}
