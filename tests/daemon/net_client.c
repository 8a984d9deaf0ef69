// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/net_client.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/runner.h"

#define TOKEN_FIELD 0x2a // tag of the token in Request, as protobuf encodes it

static struct sockaddr_in here(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

const char *net_file(const struct daemon *d, const char *name, const char *content)
{
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", d->folder, name);
    unlink(path);
    mode_t mask = umask(0077);
    FILE *file = fopen(path, "wxe");
    umask(mask);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(content, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

void net_file_remove(const struct daemon *d, const char *name)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", d->folder, name);
    unlink(path);
}

int net_connect(int port)
{
    struct sockaddr_in name = here(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0, "%s", strerror(errno));
    ck_assert_int_eq(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
    return fd;
}

void net_send(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t sent = send(fd, (const char *)data + at, size - at, MSG_NOSIGNAL);
        if (sent < 0)
            return;
        at += (size_t)sent;
    }
}

void net_greet(int fd)
{
    char greeting[8];
    net_send(fd, NET_GREETING, 8);
    ck_assert_int_eq(recv(fd, greeting, 8, MSG_WAITALL), 8);
    ck_assert_mem_eq(greeting, "\0SP\0\0\x31\0\0", 8);
}

size_t net_frame(uint8_t *bytes, uint32_t number, const struct wire_request *request,
                 const char *token)
{
    struct error error;
    void *data;
    size_t size, at = 12, length = strlen(token);
    ck_assert_int_eq(wire_encode_request(request, &data, &size, &error), STATUS_OK);
    ck_assert_uint_lt(size + length + 16, NET_MESSAGE_MAX);
    memcpy(bytes + at, data, size);
    at += size;
    free(data);
    if (length > 0) {
        bytes[at++] = TOKEN_FIELD;
        bytes[at++] = (uint8_t)(length | 0x80);
        bytes[at++] = (uint8_t)(length >> 7);
        memcpy(bytes + at, token, length);
        at += length;
    }
    uint64_t rest = htobe64(at - 8);
    number = htobe32(number | UINT32_C(0x80000000));
    memcpy(bytes, &rest, 8);
    memcpy(bytes + 8, &number, 4);
    return at;
}

struct wire_reply net_decode(const uint8_t *bytes, size_t size)
{
    struct wire_reply reply;
    struct error error;
    ck_assert_uint_ge(size, 4);
    ck_assert_msg(wire_decode_reply(bytes + 4, size - 4, &reply, &error) == STATUS_OK, "%s",
                  error.text);
    return reply;
}

void net_ask(int fd, uint32_t number, const struct wire_request *request, const char *token)
{
    static uint8_t bytes[NET_MESSAGE_MAX];
    net_send(fd, bytes, net_frame(bytes, number, request, token));
}

struct wire_reply net_answer(int fd)
{
    static uint8_t bytes[REPLY_BYTES_MAX];
    uint64_t size;
    ck_assert_int_eq(recv(fd, &size, 8, MSG_WAITALL), 8);
    size = be64toh(size);
    ck_assert_uint_le(size, sizeof(bytes));
    ck_assert_int_eq(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
    return net_decode(bytes, size);
}

void net_expect(int fd, const char *token, enum status status)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    net_ask(fd, 7, &request, token);
    struct wire_reply reply = net_answer(fd);
    ck_assert_mem_eq(&reply.id, &request.id, sizeof(reply.id));
    expect_status(&reply, status);
    wire_reply_fini(&reply);
}

void net_expect_closed(int fd)
{
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        continue;
    ck_assert_msg(got == 0 || errno == ECONNRESET, "%s", strerror(errno));
    close(fd);
}
