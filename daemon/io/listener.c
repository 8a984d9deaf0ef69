// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/listener.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nng/transport/ipc/ipc.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
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

static void bound_name(const struct listener *l, char *name)
{
    snprintf(name, LISTENER_NAME_MAX, "%s~", l->path);
}

static enum status listen_once(struct listener *l, struct error *error)
{
    char name[LISTENER_NAME_MAX], url[LISTENER_NAME_MAX + 8];
    nng_listener listener;
    bound_name(l, name);
    snprintf(url, sizeof(url), "ipc://%s", name);
    unlink(name);
    int result = nng_listener_create(&listener, l->socket, url);
    if (result != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot listen on %s: %s", l->path,
                         nng_strerror(result));
    // Mode first: nng applies it between bind and listen, so the socket is never open to others.
    result = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
    if (result == 0)
        result = nng_listener_start(listener, 0);
    if (result == 0 && rename(name, l->path) != 0)
        result = NNG_ESYSERR + errno;
    if (result != 0) {
        nng_listener_close(listener);
        return error_set(error, STATUS_UNAVAILABLE, "cannot listen on %s: %s", l->path,
                         nng_strerror(result));
    }
    l->open[l->count++] = listener;
    return STATUS_OK;
}

enum status listener_open(struct listener *l, nng_socket socket, struct error *error)
{
    l->socket = socket;
    return listen_once(l, error);
}

void listener_reclaim(struct listener *l, int (*clients)(void *context, int listener),
                      void *context)
{
    int kept = 0;
    for (int i = 0; i < l->count; i++) {
        if (i == l->count - 1 || clients(context, nng_listener_id(l->open[i])) > 0)
            l->open[kept++] = l->open[i];
        else
            nng_listener_close(l->open[i]);
    }
    l->count = kept;
}

// ---- orphans -----------------------------------------------------------------------------------

static bool fd_is_bound(const char *bound, int fd)
{
    struct sockaddr_un name = {0};
    socklen_t length = sizeof(name);
    return getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.sun_family == AF_UNIX &&
           length > sizeof(sa_family_t) &&
           strncmp(name.sun_path, bound, sizeof(name.sun_path)) == 0;
}

static bool fd_listens(int fd)
{
    int listening = 0;
    socklen_t size = sizeof(listening);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening;
}

// Whether something has come on the connection that nobody has taken note of yet.
static bool orphan_suspect(const char *bound, int fd, struct orphan *orphan)
{
    struct pollfd poll_fd = {.fd = fd};
    struct stat stat;
    int unread = 0;
    if (!fd_is_bound(bound, fd) || fd_listens(fd) || fstat(fd, &stat) != 0 ||
        ioctl(fd, FIONREAD, &unread) != 0)
        return false;
    bool ended = poll(&poll_fd, 1, 0) > 0;
    *orphan = (struct orphan){.fd = fd, .inode = stat.st_ino, .unread = unread};
    return ended || unread > 0;
}

static bool orphan_seen(const struct listener *l, const struct orphan *orphan)
{
    for (int i = 0; i < l->orphan_count; i++) {
        const struct orphan *seen = &l->orphans[i];
        if (seen->fd == orphan->fd && seen->inode == orphan->inode &&
            seen->unread == orphan->unread)
            return true;
    }
    return false;
}

// The number stays taken, since the library still counts on it; the connection behind it ends.
static void orphan_disconnect(const struct orphan *orphan)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return;
    dup3(null, orphan->fd, O_CLOEXEC);
    close(null);
}

int listener_sweep(struct listener *l)
{
    struct orphan *now = calloc(ORPHANS_MAX, sizeof(*now));
    DIR *folder = opendir("/proc/self/fd");
    char bound[LISTENER_NAME_MAX];
    int count = 0, disconnected = 0;
    struct orphan orphan;
    bound_name(l, bound);
    for (struct dirent *entry; now && folder && (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (count == ORPHANS_MAX || fd == dirfd(folder) || !orphan_suspect(bound, fd, &orphan))
            continue;
        if (orphan_seen(l, &orphan)) {
            orphan_disconnect(&orphan);
            disconnected++;
        } else {
            now[count++] = orphan;
        }
    }
    if (folder)
        closedir(folder);
    free(l->orphans);
    l->orphans = now;
    l->orphan_count = count;
    return disconnected;
}

// ---- again -------------------------------------------------------------------------------------

static int bound_count(const struct listener *l)
{
    char bound[LISTENER_NAME_MAX];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    bound_name(l, bound);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.' && fd_is_bound(bound, atoi(entry->d_name));
    if (folder)
        closedir(folder);
    return count;
}

enum status listener_reopen(struct listener *l, int connections, struct error *error)
{
    int lost = bound_count(l) - l->count - connections;
    if (lost > LISTENER_LOST_MAX || l->count == LISTENERS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "listeners on %s have died too often: %d are open, %d descriptors lost; a "
                         "restart is due",
                         l->path, l->count, lost);
    return listen_once(l, error);
}

void listener_fini(struct listener *l)
{
    free(l->orphans);
    l->orphans = NULL;
    if (!l->path[0] || l->lock_fd < 0)
        return;
    char path[LISTENER_PATH_MAX + 8];
    lock_path(l, path, sizeof(path));
    if (l->count > 0)
        unlink(l->path);
    unlink(path);
    close(l->lock_fd);
    l->lock_fd = -1;
}
