// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/list.h"
#include "common/log.h"
#include "common/plural.h"
#include "daemon/net/acceptor.h"
#include "daemon/net/log_quota.h"
#include "daemon/nodes/mesh_port.h"
#include "daemon/nodes/node_link.h"
#include "daemon/nodes/node_wire.h"

// Log lines per second about connections that are not from an agent.
#define STRANGERS_LINES_MAX 10

// An accepted connection, from an agent or from an unknown client.
struct caller {
    struct nodes *nodes;
    struct list node;
    struct node_link *link;
    ev_timer late;
    int host;     // -1: no HELLO yet
    bool refused; // the refusal is logged; its end need not be
    char address[NODE_ADDRESS_MAX];
};

struct host {
    struct caller *agent; // NULL: lost
    uint32_t mesh_port;
    char mesh_address[NODE_ADDRESS_MAX];
};

struct nodes {
    struct ev_loop *loop;
    struct nodes_config config;
    struct nodes_handler handler;
    struct crews *crews;
    struct mesh_port *mesh;
    struct acceptor acceptor;
    struct list callers;
    int caller_count;       // callers without a valid HELLO
    struct log_quota lines; // log lines about them
    struct host hosts[HOSTS_MAX];
};

// ---- from agents -------------------------------------------------------------------------------

static struct far_rank far_of(const struct caller *c, const struct node_rank *at)
{
    return (struct far_rank){c->host, at->pool, at->generation, at->rank};
}

// Reads the rank of a fault and its error, cleaned and prefixed with the name of the host.
static struct far_rank fault_read(const struct caller *c, const void *body, struct error *error)
{
    struct node_fault fault;
    char text[ERROR_TEXT_MAX];
    memcpy(&fault, body, sizeof(fault));
    bool known = fault.status > STATUS_OK && fault.status < STATUS_COUNT;
    memcpy(text, fault.text, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (char *at = text; *at; at++)
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    error_set(error, known ? (enum status)fault.status : STATUS_INTERNAL, "host %s: %.400s",
              c->nodes->config.hosts[c->host].name, text);
    return far_of(c, &fault.at);
}

static enum status on_frame(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct node_frame f;
    (void)error;
    memcpy(&f, body, sizeof(f));
    const struct far_rank at = far_of(c, &f.at);
    const struct channel_frame frame = {.magic = CHANNEL_MAGIC,
                                        .version = CHANNEL_VERSION,
                                        .type = (uint16_t)(f.type > UINT16_MAX ? 0 : f.type),
                                        .generation = f.at.generation,
                                        .length = (uint32_t)(size - sizeof(f)),
                                        .job = f.job};
    // The frame is on the stack, because the crews keep no pointer to it.
    crews_far_frame(c->nodes->crews, &at, &frame, (const uint8_t *)body + sizeof(f));
    return STATUS_OK;
}

static enum status on_not_started(struct caller *c, const void *body, size_t size,
                                  struct error *error)
{
    struct error reason;
    (void)size;
    (void)error;
    const struct far_rank at = fault_read(c, body, &reason);
    crews_far_not_started(c->nodes->crews, &at, &reason);
    return STATUS_OK;
}

static enum status on_distrusted(struct caller *c, const void *body, size_t size,
                                 struct error *error)
{
    struct error reason;
    (void)size;
    (void)error;
    const struct far_rank at = fault_read(c, body, &reason);
    crews_far_distrusted(c->nodes->crews, &at, &reason);
    return STATUS_OK;
}

static enum status end_read(const struct caller *c, const void *body, struct far_rank *at,
                            struct rank_end *end, struct error *error)
{
    struct node_end sent;
    memcpy(&sent, body, sizeof(sent));
    if (sent.kind < RANK_LIVES || sent.kind > RANK_VANISHED)
        return error_set(error, STATUS_DATA_LOSS, "the end of a rank is of kind %d", sent.kind);
    *at = far_of(c, &sent.at);
    *end = (struct rank_end){(enum rank_end_kind)sent.kind, sent.number};
    return STATUS_OK;
}

static enum status on_ending(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct far_rank at;
    struct rank_end end;
    (void)size;
    enum status status = end_read(c, body, &at, &end, error);
    if (status == STATUS_OK)
        crews_far_ending(c->nodes->crews, &at, &end);
    return status;
}

static enum status on_gone(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct far_rank at;
    struct rank_end end;
    (void)size;
    enum status status = end_read(c, body, &at, &end, error);
    if (status == STATUS_OK)
        crews_far_gone(c->nodes->crews, &at, &end);
    return status;
}

static enum status on_wrote(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct node_rank rank;
    (void)error;
    memcpy(&rank, body, sizeof(rank));
    const struct far_rank at = far_of(c, &rank);
    crews_far_wrote(c->nodes->crews, &at, (const uint8_t *)body + sizeof(rank),
                    size - sizeof(rank));
    return STATUS_OK;
}

static enum status on_seen(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct node_seen seen;
    (void)size;
    (void)error;
    memcpy(&seen, body, sizeof(seen));
    const struct far_rank at = far_of(c, &seen.at);
    const struct progress word = {seen.word};
    bool letter = (seen.state >= 'A' && seen.state <= 'Z') || seen.state == 't';
    crews_far_seen(c->nodes->crews, &at, &word, letter ? seen.state : 'X', seen.at_memory_limit);
    return STATUS_OK;
}

// ---- identification of an agent ----------------------------------------------------------------

static int host_find(const struct nodes *n, const char *name)
{
    for (int host = 1; host < n->config.count; host++)
        if (strcmp(n->config.hosts[host].name, name) == 0)
            return host;
    return -1;
}

static bool secret_right(const struct nodes *n, const struct node_hello *hello)
{
    struct token token = {{0}};
    size_t length = strnlen(hello->token, sizeof(hello->token));
    if (!token_is_valid(hello->token, length))
        return false;
    token_set(&token, hello->token, length);
    bool right = token_equal(&token, &n->config.token);
    token_wipe(&token);
    return right;
}

static enum status hello_check(const struct nodes *n, const struct node_hello *hello,
                               struct error *error)
{
    char build_id[NODE_BUILD_ID_MAX];
    node_build_id(build_id);
    if (hello->magic != NODE_MAGIC || !secret_right(n, hello))
        return error_set(error, STATUS_PERMISSION_DENIED, "the token is not that of this daemon");
    if (hello->version != NODE_VERSION || memcmp(hello->build_id, build_id, sizeof(build_id)) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the agent is of another build than the daemon (%s); install the same "
                         "on all hosts",
                         build_id);
    if (!node_text_ok(hello->name, sizeof(hello->name)) ||
        !node_text_ok(hello->backend, sizeof(hello->backend)) ||
        !node_text_ok(hello->mesh_address, sizeof(hello->mesh_address)) ||
        hello->mesh_port > UINT16_MAX)
        return error_set(error, STATUS_DATA_LOSS, "an invalid HELLO");
    int host = host_find(n, hello->name);
    if (host < 0)
        return error_set(error, STATUS_NOT_FOUND, "'%s' is not among the hosts of this daemon",
                         hello->name);
    if (n->hosts[host].agent)
        return error_set(error, STATUS_ALREADY_EXISTS, "an agent for host %s is there already",
                         hello->name);
    if (strcmp(hello->backend, n->config.backend) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "its backend is %s, that of the daemon %s", hello->backend,
                         n->config.backend);
    if (hello->device_count < n->config.hosts[host].device_count)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "it has %d device%s, and the daemon's settings give it %d",
                         hello->device_count, plural(hello->device_count),
                         n->config.hosts[host].device_count);
    return STATUS_OK;
}

static void refuse(struct caller *c, const struct error *error)
{
    struct node_fault fault = {.status = (int32_t)error->status};
    c->refused = true;
    memcpy(fault.text, error->text, sizeof(fault.text));
    if (log_quota_take(&c->nodes->lines))
        log_warning("agent_refused address=%s error=%s", c->address,
                    log_quote(&(struct log_quoted){0}, error->text));
    node_link_send(c->link, NODE_REFUSED, &fault, sizeof(fault), NULL, 0);
    node_link_finish(c->link, error);
}

static enum status on_hello(struct caller *c, const void *body, size_t size, struct error *error)
{
    struct nodes *n = c->nodes;
    struct node_hello hello;
    struct error refusal;
    (void)size;
    (void)error;
    memcpy(&hello, body, sizeof(hello));
    enum status status = hello_check(n, &hello, &refusal);
    explicit_bzero(hello.token, sizeof(hello.token));
    if (status != STATUS_OK) {
        refuse(c, &refusal);
        return STATUS_OK;
    }
    ev_timer_stop(n->loop, &c->late);
    n->caller_count--;
    c->host = host_find(n, hello.name);
    struct host *host = &n->hosts[c->host];
    host->agent = c;
    host->mesh_port = hello.mesh_port;
    memcpy(host->mesh_address, hello.mesh_address[0] ? hello.mesh_address : c->address,
           sizeof(host->mesh_address));
    log_notice("host_back host=%s address=%s mesh_port=%u devices=%d", hello.name, c->address,
               hello.mesh_port, hello.device_count);
    node_link_send(c->link, NODE_WELCOME, NULL, 0, NULL, 0);
    n->handler.back(n->handler.context, c->host);
    return STATUS_OK;
}

static enum status on_message(void *context, struct node_link *link, enum node_message type,
                              const void *body, size_t size, struct error *error)
{
    static enum status (*const handlers[])(struct caller *, const void *, size_t,
                                           struct error *) = {
        [NODE_FRAME] = on_frame,
        [NODE_NOT_STARTED] = on_not_started,
        [NODE_DISTRUSTED] = on_distrusted,
        [NODE_ENDING] = on_ending,
        [NODE_GONE] = on_gone,
        [NODE_WROTE] = on_wrote,
        [NODE_SEEN] = on_seen,
    };
    struct caller *c = context;
    (void)link;
    if (c->host < 0 && type == NODE_HELLO)
        return on_hello(c, body, size, error);
    if (c->host < 0 || (size_t)type >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[type])
        return error_set(error, STATUS_DATA_LOSS, "an agent must not send %s here",
                         node_message_name(type));
    return handlers[type](c, body, size, error);
}

// ---- connections -------------------------------------------------------------------------------

static void caller_drop(struct caller *c)
{
    struct nodes *n = c->nodes;
    ev_timer_stop(n->loop, &c->late);
    if (c->host >= 0)
        n->hosts[c->host].agent = NULL;
    else
        n->caller_count--;
    node_link_destroy(c->link);
    list_remove(&c->node);
    free(c);
}

static void on_ended(void *context, struct node_link *link, const struct error *error)
{
    struct caller *c = context;
    struct nodes *n = c->nodes;
    int host = c->host;
    (void)link;
    const struct error reason = *error;
    if (host < 0 && !c->refused && log_quota_take(&n->lines))
        log_info("agent_gone address=%s error=%s", c->address,
                 log_quote(&(struct log_quoted){0}, error->text));
    else if (host >= 0)
        log_warning("host_lost host=%s error=%s", n->config.hosts[host].name,
                    log_quote(&(struct log_quoted){0}, error->text));
    caller_drop(c);
    if (host < 0)
        return;
    n->handler.lost(n->handler.context, host, &reason);
    crews_host_lost(n->crews, host);
}

static void on_late(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    caller_drop(watcher->data);
}

static void address_write(const struct sockaddr_storage *from, socklen_t size,
                          char text[NODE_ADDRESS_MAX])
{
    if (getnameinfo((const struct sockaddr *)from, size, text, NODE_ADDRESS_MAX, NULL, 0,
                    NI_NUMERICHOST) != 0)
        text[0] = '\0';
    if (strncmp(text, "::ffff:", 7) == 0)
        memmove(text, text + 7, strlen(text + 7) + 1);
}

static bool may_call(const struct nodes *n, const char *address)
{
    int count = 0;
    LIST_FOREACH (node, &n->callers) {
        const struct caller *c = LIST_ENTRY(node, struct caller, node);
        count += c->host < 0 && strcmp(c->address, address) == 0;
    }
    return n->caller_count < NODES_CALLERS_MAX && count < NODES_CALLERS_ADDRESS_MAX;
}

static void on_accepted(void *context, int fd, const struct sockaddr_storage *from, socklen_t size)
{
    struct nodes *n = context;
    char address[NODE_ADDRESS_MAX];
    address_write(from, size, address);
    struct caller *c = may_call(n, address) ? calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        close(fd);
        return;
    }
    const struct node_link_handler handler = {c, on_message, on_ended};
    c->nodes = n;
    c->host = -1;
    memcpy(c->address, address, sizeof(c->address));
    c->link = node_link_create(n->loop, fd, &handler, n->config.tls, NULL);
    if (!c->link) {
        free(c);
        return;
    }
    ev_timer_init(&c->late, on_late, NODES_CALLER_S, 0.);
    c->late.data = c;
    ev_timer_start(n->loop, &c->late);
    list_init(&c->node);
    list_push_back(&n->callers, &c->node);
    n->caller_count++;
}

// ---- orders ------------------------------------------------------------------------------------

static struct node_link *link_of(const struct nodes *n, int host)
{
    const struct caller *agent = host > 0 && host < n->config.count ? n->hosts[host].agent : NULL;
    return agent ? agent->link : NULL;
}

static void key_make(uint8_t key[NODE_KEY_BYTES])
{
    while (getrandom(key, NODE_KEY_BYTES, 0) != NODE_KEY_BYTES)
        ;
}

static void meet_fill(const struct nodes *n, int host, struct node_start *start)
{
    start->meet[host].port =
        host == HOST_HERE ? (uint32_t)mesh_port_number(n->mesh) : n->hosts[host].mesh_port;
    if (host != HOST_HERE)
        memcpy(start->meet[host].address, n->hosts[host].mesh_address,
               sizeof(start->meet[host].address));
}

static void order_start(void *context, int pool, const struct crew_start *crew)
{
    struct nodes *n = context;
    struct node_start start = {.at = {crew->generation, pool, -1},
                               .implementation = crew->implementation,
                               .world_size = crew->world_size};
    uint64_t hosts = 0;
    key_make(start.key);
    for (int rank = 0; rank < crew->world_size; rank++) {
        start.hosts[rank] = (uint8_t)crew->hosts[rank];
        start.devices[rank] = (int16_t)crew->slots[rank];
        hosts |= UINT64_C(1) << crew->hosts[rank];
    }
    for (int host = 0; host < n->config.count; host++)
        if (hosts >> host & 1)
            meet_fill(n, host, &start);
    if (hosts & 1)
        mesh_port_meet(n->mesh, &start, NULL);
    for (int host = 1; host < n->config.count; host++) {
        start.host = host;
        if ((hosts >> host & 1) && link_of(n, host))
            node_link_send(link_of(n, host), NODE_START, &start, sizeof(start), NULL, 0);
    }
    explicit_bzero(start.key, sizeof(start.key));
}

static void order_send(void *context, int host, uint32_t generation, int rank,
                       enum channel_type type, uint64_t job, const void *payload, uint32_t length)
{
    struct node_link *link = link_of(context, host);
    const struct node_frame frame = {
        .at = {generation, -1, rank}, .type = (uint32_t)type, .job = job};
    if (link)
        node_link_send(link, NODE_FRAME, &frame, sizeof(frame), payload, length);
}

static void order(void *context, int host, enum node_message type, uint32_t generation, int number)
{
    struct node_link *link = link_of(context, host);
    const struct node_order o = {.at = {generation, -1, -1}, .number = number};
    if (link)
        node_link_send(link, type, &o, sizeof(o), NULL, 0);
}

static void order_signal(void *context, int host, uint32_t generation, int number)
{
    order(context, host, NODE_SIGNAL, generation, number);
}

static void order_kill(void *context, int host, uint32_t generation)
{
    struct nodes *n = context;
    mesh_port_part(n->mesh, generation);
    order(context, host, NODE_KILL, generation, 0);
}

static void order_stop(void *context, int host, uint32_t generation)
{
    order(context, host, NODE_STOP, generation, 0);
}

static const char *name_of(void *context, int host)
{
    const struct nodes *n = context;
    return n->config.hosts[host].name;
}

void nodes_join(struct nodes *n, struct crews *crews)
{
    const struct far_hosts far = {n,          order_start, order_send, order_signal,
                                  order_kill, order_stop,  name_of};
    n->crews = crews;
    crews_set_far(crews, &far);
}

// ---- sockets between ranks ---------------------------------------------------------------------

static void on_connected(void *context, int pool, uint32_t generation, int rank, int peer, int fd)
{
    struct nodes *n = context;
    crews_connect(n->crews, pool, generation, rank, peer, fd);
}

static void on_not_connected(void *context, int pool, uint32_t generation,
                             const struct error *error)
{
    struct nodes *n = context;
    crews_not_connected(n->crews, pool, generation, error);
}

// ---- life --------------------------------------------------------------------------------------

enum status nodes_create(struct ev_loop *loop, const struct nodes_config *config,
                         const struct nodes_handler *handler, struct nodes **nodes,
                         struct error *error)
{
    struct nodes *n = calloc(1, sizeof(*n));
    if (!n)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for other hosts");
    n->lines.lines_max = STRANGERS_LINES_MAX;
    n->loop = loop;
    n->config = *config;
    n->handler = *handler;
    list_init(&n->callers);
    const struct mesh_handler mesh = {n, on_connected, on_not_connected};
    enum status status =
        mesh_port_create(loop, config->mesh_address, config->mesh_port, &mesh, &n->mesh, error);
    if (status != STATUS_OK) {
        nodes_destroy(n);
        return status;
    }
    acceptor_start(&n->acceptor, loop, "agents", config->fd, on_accepted, n);
    *nodes = n;
    return STATUS_OK;
}

void nodes_set_access(struct nodes *n, const struct token *token, struct tls *tls)
{
    n->config.token = *token;
    n->config.tls = tls;
}

void nodes_destroy(struct nodes *n)
{
    if (!n)
        return;
    acceptor_stop(&n->acceptor);
    while (!list_empty(&n->callers))
        caller_drop(LIST_ENTRY(list_first(&n->callers), struct caller, node));
    mesh_port_destroy(n->mesh);
    token_wipe(&n->config.token);
    free(n);
}

int nodes_there(const struct nodes *n)
{
    int there = 1;
    for (int host = 1; host < n->config.count; host++)
        there += n->hosts[host].agent != NULL;
    return there;
}
