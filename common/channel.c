// SPDX-License-Identifier: Apache-2.0
#include "common/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/report.h"
#include "config.h"

// Bound of channel_last_fd(): the kernel's descriptor table grows with the highest number in use.
#define LAST_FD_MAX 4095

static const char *const type_names[] = {
#define CHANNEL_NAME(name, number) [number] = #name,
    CHANNEL_TYPE_LIST(CHANNEL_NAME)
#undef CHANNEL_NAME
};
#define TYPES ((int)(sizeof(type_names) / sizeof(type_names[0])))

static bool type_known(int type)
{
    return type >= 0 && type < TYPES && type_names[type];
}

const char *channel_type_name(int type)
{
    return type_known(type) ? type_names[type] : "?";
}

void channel_hello_fill(struct channel_hello *hello, int pid, int rank)
{
    memset(hello, 0, sizeof(*hello));
    hello->pid = pid;
    hello->rank = rank;
    // Struct sizes stand for layouts: adding or removing a field changes the id.
    snprintf(hello->build_id, sizeof(hello->build_id), PACKAGE_VERSION "/%d/%zu/%zu",
             CHANNEL_VERSION, sizeof(struct rank_report), sizeof(struct rank_failure));
}

enum status channel_hello_check(const struct channel_frame *frame, const void *payload, int rank,
                                struct error *error)
{
    if (frame->type != CHANNEL_HELLO)
        return error_set(error, STATUS_DATA_LOSS, "the first frame is %s instead of HELLO",
                         channel_type_name(frame->type));
    struct channel_hello hello, expected;
    enum status status = channel_expect(frame, sizeof(hello), error);
    if (status != STATUS_OK)
        return status;
    memcpy(&hello, payload, sizeof(hello));
    channel_hello_fill(&expected, hello.pid, rank);
    if (hello.rank != rank)
        return error_set(error, STATUS_DATA_LOSS, "rank %d introduces itself as rank %d", rank,
                         hello.rank);
    if (memcmp(hello.build_id, expected.build_id, sizeof(hello.build_id)) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "rank %d is of another build than the daemon (%s); restart the daemon, or "
                         "install both again",
                         rank, expected.build_id);
    return STATUS_OK;
}

int channel_last_fd(void)
{
    struct rlimit limit;
    bool small = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= LAST_FD_MAX;
    return small ? (int)limit.rlim_cur - 1 : LAST_FD_MAX;
}

enum status channel_pair(int ends[2], struct error *error)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no socket pair for a rank: %s",
                         strerror(errno));
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) {
        error_set(error, STATUS_INTERNAL, "cannot make a channel non-blocking: %s",
                  strerror(errno));
        close(pair[0]);
        close(pair[1]);
        return STATUS_INTERNAL;
    }
    ends[0] = pair[0];
    ends[1] = pair[1];
    return STATUS_OK;
}

static enum status send_failed(int number, const char *name, struct error *error)
{
    switch (number) {
    case EAGAIN:
    case ENOBUFS:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "cannot send %s: the peer does not read its channel", name);
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return error_set(error, STATUS_UNAVAILABLE, "cannot send %s: the peer is gone", name);
    default:
        return error_set(error, STATUS_INTERNAL, "cannot send %s: %s", name, strerror(number));
    }
}

union control {
    char bytes[CMSG_SPACE(CHANNEL_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

static void fds_attach(struct msghdr *message, union control *control, const int *fds, int count)
{
    size_t bytes = (size_t)count * sizeof(int);
    if (count == 0)
        return;
    *control = (union control){.bytes = {0}};
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(bytes);
    control->align = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(message)), fds, bytes);
}

enum status channel_send(int fd, enum channel_type type, uint32_t generation, uint64_t job,
                         const void *payload, uint32_t length, struct error *error)
{
    return channel_send_fds(fd, type, generation, job, payload, length, NULL, 0, error);
}

enum status channel_send_fds(int fd, enum channel_type type, uint32_t generation, uint64_t job,
                             const void *payload, uint32_t length, const int *fds, int count,
                             struct error *error)
{
    if (!type_known((int)type))
        return error_set(error, STATUS_INVALID_ARGUMENT, "frame type %d is unknown", (int)type);
    if (length > CHANNEL_PAYLOAD_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "payload of %u bytes for %s; a frame holds at most %d", length,
                         channel_type_name((int)type), CHANNEL_PAYLOAD_MAX);
    struct channel_frame frame = {.magic = CHANNEL_MAGIC,
                                  .type = (uint16_t)type,
                                  .version = CHANNEL_VERSION,
                                  .generation = generation,
                                  .length = length,
                                  .job = job};
    struct iovec parts[2] = {{&frame, sizeof(frame)}, {(void *)payload, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = length ? 2 : 1};
    union control control;
    ssize_t sent;
    fds_attach(&message, &control, fds, count);
    do
        sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return send_failed(errno, channel_type_name((int)type), error);
    return STATUS_OK;
}

static enum status recv_failed(int number, struct error *error)
{
    switch (number) {
    case EAGAIN:
        return error_set(error, STATUS_NOT_FOUND, "no frame is waiting");
    case ECONNRESET:
    case ENOTCONN:
        return error_set(error, STATUS_UNAVAILABLE, "the peer has closed the channel");
    default:
        return error_set(error, STATUS_INTERNAL, "cannot receive a frame: %s", strerror(number));
    }
}

// Checks a header against the `received` bytes of the datagram that it came in.
static enum status frame_check(const struct channel_frame *frame, size_t received,
                               struct error *error)
{
    if (received < sizeof(*frame))
        return error_set(error, STATUS_DATA_LOSS,
                         "a datagram of %zu bytes is shorter than a frame header of %zu", received,
                         sizeof(*frame));
    if (frame->magic != CHANNEL_MAGIC)
        return error_set(error, STATUS_DATA_LOSS, "a frame starts with 0x%08x instead of 0x%08x",
                         frame->magic, CHANNEL_MAGIC);
    if (frame->version != CHANNEL_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the peer speaks channel version %u, this build version %d",
                         frame->version, CHANNEL_VERSION);
    if (!type_known(frame->type))
        return error_set(error, STATUS_DATA_LOSS, "frame type %u is unknown", frame->type);
    if (frame->length != received - sizeof(*frame))
        return error_set(error, STATUS_DATA_LOSS,
                         "a %s frame announces %u bytes of payload and carries %zu",
                         channel_type_name(frame->type), frame->length, received - sizeof(*frame));
    return STATUS_OK;
}

static void fds_collect(struct msghdr *message, int fds[CHANNEL_FDS_MAX], int *count)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        *count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)*count * sizeof(int));
    }
}

enum status channel_recv(int fd, struct channel_frame *frame, void *payload, struct error *error)
{
    int fds[CHANNEL_FDS_MAX], count;
    enum status status = channel_recv_fds(fd, frame, payload, fds, &count, error);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return status;
}

enum status channel_recv_fds(int fd, struct channel_frame *frame, void *payload,
                             int fds[CHANNEL_FDS_MAX], int *count, struct error *error)
{
    struct channel_frame header = {0};
    struct iovec parts[2] = {{&header, sizeof(header)}, {payload, CHANNEL_PAYLOAD_MAX}};
    union control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t received;
    *count = 0;
    do
        received = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received >= 0)
        fds_collect(&message, fds, count);
    if (received < 0)
        return recv_failed(errno, error);
    if (received == 0)
        return recv_failed(ENOTCONN, error);
    if (message.msg_flags & MSG_TRUNC)
        return error_set(error, STATUS_DATA_LOSS, "a datagram is longer than a frame may be (%zu)",
                         sizeof(header) + CHANNEL_PAYLOAD_MAX);
    enum status status = frame_check(&header, (size_t)received, error);
    if (status == STATUS_OK)
        *frame = header;
    return status;
}

enum status channel_expect(const struct channel_frame *frame, uint32_t length, struct error *error)
{
    if (frame->length == length)
        return STATUS_OK;
    return error_set(error, STATUS_DATA_LOSS,
                     "a %s frame carries %u bytes of payload instead of %u",
                     channel_type_name(frame->type), frame->length, length);
}
