// SPDX-License-Identifier: Apache-2.0
#include "client/attend_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/deposit.h"
#include "common/net_url.h"

#define REPLY_WAIT_S 5
// Upper bound of the bytes of one system call.
#define PIECE_BYTES  (INT64_C(1) << 30)

// ---- shared memory ------------------------------------------------------------------------------

static bool write_all(int fd, const char *data, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t put =
            pwrite(fd, data, (size_t)(bytes < PIECE_BYTES ? bytes : PIECE_BYTES), (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        offset += put;
        bytes -= put;
    }
    return true;
}

static bool read_all(int fd, char *data, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t got =
            pread(fd, data, (size_t)(bytes < PIECE_BYTES ? bytes : PIECE_BYTES), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        data += got;
        offset += got;
        bytes -= got;
    }
    return true;
}

static enum status memory_short(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no shared memory for the tensors: %s",
                     strerror(errno));
}

static enum status memory_make(const char *name, int64_t bytes, int *fd, struct error *error)
{
    if (bytes == 0)
        return STATUS_OK;
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return *fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0 ? STATUS_OK : memory_short(error);
}

static enum status memory_seal(int fd, int seals, struct error *error)
{
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return STATUS_OK;
    return memory_short(error);
}

// Copies the inputs to shared memory. Allocates every page first, also between the tensors: the
// daemon refuses memory with holes.
static enum status given_fill(const struct attend_memory *a, const struct cp_case *c,
                              const struct attend_tensors *tensors, struct error *error)
{
    static const char zeros[PLACE_ALIGNMENT];
    bool good = a->given_fd < 0 || fallocate(a->given_fd, 0, 0, (off_t)a->given_bytes) == 0 ||
                write_all(a->given_fd, zeros, 1, a->given_bytes - 1);
    for (int i = 0; i < WHOLE_INPUTS && good; i++)
        if (tensors->given[i])
            good = write_all(a->given_fd, tensors->given[i], whole_bytes(c, (enum whole_tensor)i),
                             a->places.given[i]);
    return good ? STATUS_OK : memory_short(error);
}

static enum status places_fill(struct attend_memory *a, const struct cp_case *c,
                               const struct attend_tensors *tensors, struct error *error)
{
    places_init(&a->places);
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        if (i < WHOLE_INPUTS && tensors->given[i])
            a->places.given[i] = 0;
        if (tensors->wanted[i])
            a->places.wanted[i] = 0;
        if (tensors->expected[i])
            a->places.expected[i] = 0;
    }
    places_lay_out(c, &a->places, &a->given_bytes, &a->wanted_bytes);
    return places_check(c, &a->places, a->given_bytes, a->wanted_bytes, error);
}

enum status attend_memory_init(struct attend_memory *a, const struct cp_case *c,
                               const struct attend_tensors *tensors, struct error *error)
{
    *a = (struct attend_memory){.given_fd = -1, .wanted_fd = -1, .socket = -1};
    enum status status = places_fill(a, c, tensors, error);
    if (status == STATUS_OK)
        status = memory_make("cpattn-given", a->given_bytes, &a->given_fd, error);
    if (status == STATUS_OK)
        status = memory_make("cpattn-wanted", a->wanted_bytes, &a->wanted_fd, error);
    if (status == STATUS_OK)
        status = given_fill(a, c, tensors, error);
    if (status == STATUS_OK)
        status = memory_seal(a->given_fd, F_SEAL_WRITE, error);
    if (status == STATUS_OK)
        status = memory_seal(a->wanted_fd, 0, error);
    if (status != STATUS_OK)
        attend_memory_fini(a);
    return status;
}

void attend_memory_fini(struct attend_memory *a)
{
    int *fds[] = {&a->given_fd, &a->wanted_fd, &a->socket};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

enum status attend_memory_fetch(const struct attend_memory *a, const struct cp_case *c,
                                const struct attend_tensors *tensors, struct error *error)
{
    bool good = true;
    for (int i = 0; i < WHOLE_TENSORS && good; i++) {
        int64_t bytes = whole_bytes(c, (enum whole_tensor)i);
        if (tensors->wanted[i])
            good = read_all(a->wanted_fd, tensors->wanted[i], bytes, a->places.wanted[i]);
        if (tensors->expected[i] && good)
            good = read_all(a->wanted_fd, tensors->expected[i], bytes, a->places.expected[i]);
    }
    return good ? STATUS_OK
                : error_set(error, STATUS_DATA_LOSS, "the tensors cannot be read: %s",
                            strerror(errno));
}

// ---- handing memory to the daemon ---------------------------------------------------------------

static enum status socket_open(const char *address, int *fd, struct error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = REPLY_WAIT_S};
    size_t length = strlen(address) + strlen(DEPOSIT_SUFFIX);
    if (length >= sizeof(name.sun_path))
        return error_set(error, STATUS_UNAVAILABLE,
                         "tensors go through %s%s, and a socket's path has at most %zu characters",
                         address, DEPOSIT_SUFFIX, sizeof(name.sun_path) - 1);
    memcpy(name.sun_path, address, strlen(address));
    memcpy(name.sun_path + strlen(address), DEPOSIT_SUFFIX, strlen(DEPOSIT_SUFFIX) + 1);
    int opened = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (opened >= 0) {
        setsockopt(opened, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(opened, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    }
    if (opened >= 0 && connect(opened, (struct sockaddr *)&name, sizeof(name)) == 0) {
        *fd = opened;
        return STATUS_OK;
    }
    int number = errno;
    if (opened >= 0)
        close(opened);
    return error_set(error, number == EACCES ? STATUS_PERMISSION_DENIED : STATUS_UNAVAILABLE,
                     "the daemon accepts no tensors at %s: %s; a daemon of this version does",
                     name.sun_path, strerror(number));
}

static enum status descriptors_send(const struct attend_memory *a, const struct request_id *id,
                                    struct error *error)
{
    union {
        char bytes[CMSG_SPACE(DEPOSIT_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct deposit_request request = {.magic = DEPOSIT_MAGIC, .version = DEPOSIT_VERSION};
    int fds[DEPOSIT_FDS_MAX], count = 0;
    memcpy(request.id, id->bytes, sizeof(request.id));
    if (a->given_fd >= 0) {
        request.kinds |= DEPOSIT_GIVEN;
        fds[count++] = a->given_fd;
    }
    if (a->wanted_fd >= 0) {
        request.kinds |= DEPOSIT_WANTED;
        fds[count++] = a->wanted_fd;
    }
    size_t bytes = (size_t)count * sizeof(int);
    struct iovec part = {&request, sizeof(request)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
    memcpy(CMSG_DATA(header), fds, bytes);
    if (sendmsg(a->socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(request))
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE, "the daemon refuses the tensors: %s",
                     strerror(errno));
}

static enum status reply_receive(int socket, struct error *error)
{
    struct deposit_reply reply;
    ssize_t got;
    do
        got = recv(socket, &reply, sizeof(reply), 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(reply))
        return error_set(error, STATUS_UNAVAILABLE, "the daemon has not confirmed the tensors");
    if (reply.status == STATUS_OK)
        return STATUS_OK;
    reply.text[sizeof(reply.text) - 1] = '\0';
    return error_set(error,
                     reply.status < STATUS_COUNT ? (enum status)reply.status : STATUS_DATA_LOSS,
                     "%s", reply.text);
}

enum status attend_memory_hand_in(struct attend_memory *a, const char *address,
                                  const struct request_id *id, struct error *error)
{
    if (net_url_is_meant(address))
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "tensors travel as shared memory, which %s does not carry; submit them on "
                         "the daemon's machine, through its unix socket",
                         address);
    enum status status = socket_open(address, &a->socket, error);
    if (status == STATUS_OK)
        status = descriptors_send(a, id, error);
    return status == STATUS_OK ? reply_receive(a->socket, error) : status;
}
