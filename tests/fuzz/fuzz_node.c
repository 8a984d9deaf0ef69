// SPDX-License-Identifier: Apache-2.0
// Any bytes on the connection between daemon and agent. Messages are within their bounds and as
// they were sent, or the connection ends with a reason. An accepted START has only valid ranks,
// hosts and devices.
#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/nodes/node_link.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

struct stream {
    const uint8_t *data;
    size_t size, at;
    bool refused, ended;
};

static void start_require(const struct node_start *s)
{
    require(s->world_size >= 1 && s->world_size <= WORLD_SIZE_MAX);
    require(s->host >= 0 && s->host < HOSTS_MAX && s->at.pool >= 0 && s->at.pool < POOLS_MAX);
    for (int rank = 0; rank < s->world_size; rank++)
        require(s->hosts[rank] < HOSTS_MAX && s->devices[rank] >= 0 &&
                s->devices[rank] < DEVICES_MAX);
    for (int host = 0; host < HOSTS_MAX; host++)
        require(memchr(s->meet[host].address, '\0', sizeof(s->meet[host].address)));
}

// Beats are not reported to the handler.
static void beats_skip(struct stream *s)
{
    struct node_header header;
    while (s->size - s->at >= sizeof(header)) {
        memcpy(&header, s->data + s->at, sizeof(header));
        if (header.type != NODE_BEAT || header.length != 0)
            return;
        s->at += sizeof(header);
    }
}

static enum status on_message(void *context, struct node_link *link, enum node_message type,
                              const void *body, size_t size, struct error *error)
{
    struct stream *s = context;
    struct node_header header;
    struct node_start start;
    (void)link;
    beats_skip(s);
    require(!s->ended && s->at + sizeof(header) + size <= s->size);
    memcpy(&header, s->data + s->at, sizeof(header));
    require(header.type == (uint32_t)type && header.length == size && size <= NODE_BODY_MAX);
    require(memcmp(body, s->data + s->at + sizeof(header), size) == 0);
    require(strcmp(node_message_name(type), "?") != 0);
    s->at += sizeof(header) + size;
    if (type != NODE_START)
        return STATUS_OK;
    memcpy(&start, body, sizeof(start));
    enum status status = node_start_check(&start, error);
    if (status == STATUS_OK)
        start_require(&start);
    else
        require(status == STATUS_DATA_LOSS && error->text[0]);
    s->refused = status != STATUS_OK;
    return status;
}

static void on_ended(void *context, struct node_link *link, const struct error *error)
{
    struct stream *s = context;
    (void)link;
    require(!s->ended && error->status != STATUS_OK && error->text[0]);
    s->ended = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream s = {.data = data, .size = size};
    const struct node_link_handler handler = {&s, on_message, on_ended};
    int ends[2];
    fuzz_accepted = false;
    if (size > NODE_SIZE_MAX)
        return 0;
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    struct ev_loop *loop = ev_loop_new(EVFLAG_NOENV);
    struct node_link *link = node_link_create(loop, ends[0], &handler, NULL, NULL);
    require(link && send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    shutdown(ends[1], SHUT_WR);
    while (!s.ended)
        ev_run(loop, EVRUN_ONCE);
    beats_skip(&s);
    fuzz_accepted = s.at == size && !s.refused;
    node_link_destroy(link);
    ev_loop_destroy(loop);
    close(ends[1]);
    return 0;
}
