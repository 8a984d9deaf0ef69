// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/agent.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/nodes/leftovers.h"
#include "daemon/nodes/mesh_port.h"
#include "daemon/nodes/node_link.h"
#include "daemon/pool/rank_child.h"
#include "daemon/pool/rank_host.h"
#include "daemon/pool/squad.h"
#include "daemon/settings/plain_file.h"

// Time limit of agent_destroy() for processes that have got SIGKILL.
#define REAP_MAX_NS     (2 * NS_PER_S)
// Pause between attempts to connect to the daemon, and time limit for each of its addresses.
#define DIAL_AGAIN_S    .5
#define DIAL_MAX_MS     3000
// Period of the reports on ranks; every LOOK_STATES-th also reads the states of the processes.
#define LOOK_S          .1
#define LOOK_STATES     10
// Maximum number of pools with ranks on this host.
#define AGENT_POOLS_MAX POOLS_MAX

// The ranks of a pool on this host.
struct agent_pool {
    struct agent *agent;
    struct list node;
    struct squad *squad;
    struct node_start start;
    struct node_seen seen[WORLD_SIZE_MAX]; // the last report to the daemon
};

struct agent {
    struct ev_loop *loop;
    struct agent_config config;
    struct rank_host host;
    struct guests no_guests;
    struct mesh_port *mesh;
    struct node_link *link;         // NULL: not connected to the daemon
    bool welcome;                   // the daemon has sent WELCOME
    struct sockaddr_storage daemon; // address of the daemon on the link
    struct list pools;
    ev_timer dial, look;
    unsigned looks;
    char told[ERROR_TEXT_MAX];       // last logged reason for not being connected
    char told_files[ERROR_TEXT_MAX]; // last logged fault of the TLS files; "": they can be used
};

// ---- to the daemon -----------------------------------------------------------------------------

static void tell(struct agent *a, enum node_message type, const void *body, size_t size)
{
    if (a->link)
        node_link_send(a->link, type, body, size, NULL, 0);
}

static struct node_rank at_of(const struct agent_pool *p, int rank)
{
    return (struct node_rank){p->start.at.generation, p->start.at.pool, rank};
}

static void fault_tell(struct agent_pool *p, enum node_message type, int rank,
                       const struct error *error)
{
    struct node_fault fault = {.at = at_of(p, rank), .status = (int32_t)error->status};
    memcpy(fault.text, error->text, sizeof(fault.text));
    tell(p->agent, type, &fault, sizeof(fault));
}

static void rank_look(struct agent_pool *p, int rank, bool states)
{
    const struct rank_child *c = &p->squad->children[rank];
    const struct node_seen *last = &p->seen[rank];
    struct node_seen seen = {.state = last->state, .at_memory_limit = last->at_memory_limit};
    if (!c->squad)
        return;
    seen.at = at_of(p, rank);
    seen.word = __atomic_load_n(&p->squad->progress[rank].word, __ATOMIC_RELAXED);
    if (states && c->pid != 0) {
        seen.state = rank_child_state(c);
        seen.at_memory_limit = rank_child_at_memory_limit(c);
    }
    if (seen.word == last->word && seen.state == last->state &&
        seen.at_memory_limit == last->at_memory_limit)
        return;
    p->seen[rank] = seen;
    tell(p->agent, NODE_SEEN, &seen, sizeof(seen));
}

static void pool_look(struct agent_pool *p, bool states)
{
    for (int rank = 0; p->squad && rank < p->start.world_size; rank++)
        rank_look(p, rank, states);
}

static void on_look(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct agent *a = watcher->data;
    bool states = a->looks++ % LOOK_STATES == 0;
    LIST_FOREACH (node, &a->pools)
        pool_look(LIST_ENTRY(node, struct agent_pool, node), states);
    if (states)
        rank_host_reap_strays(&a->host);
}

// ---- pools -------------------------------------------------------------------------------------

static void dial_soon(struct agent *a, double after_s);

static void pool_drop(struct agent_pool *p, uint64_t deadline_ns)
{
    struct agent *a = p->agent;
    mesh_port_part(a->mesh, p->start.at.generation);
    squad_destroy(p->squad, deadline_ns);
    list_remove(&p->node);
    free(p);
    if (!a->link && list_empty(&a->pools))
        dial_soon(a, 0.);
}

static struct agent_pool *pool_find(struct agent *a, uint32_t generation)
{
    LIST_FOREACH (node, &a->pools) {
        struct agent_pool *p = LIST_ENTRY(node, struct agent_pool, node);
        if (p->start.at.generation == generation)
            return p;
    }
    return NULL;
}

static void on_not_started(void *context, const struct error *error)
{
    struct agent_pool *p = context;
    fault_tell(p, NODE_NOT_STARTED, -1, error);
    pool_drop(p, 0);
}

static enum status on_frame(void *context, int rank, const struct channel_frame *frame,
                            const void *payload, struct error *error)
{
    struct agent_pool *p = context;
    const struct node_frame f = {.at = at_of(p, rank), .type = frame->type, .job = frame->job};
    (void)error;
    if (frame->type == CHANNEL_FAILED)
        pool_look(p, true);
    if (p->agent->link)
        node_link_send(p->agent->link, NODE_FRAME, &f, sizeof(f), payload, frame->length);
    return STATUS_OK;
}

static void on_distrusted(void *context, int rank, const struct error *error)
{
    pool_look(context, true);
    fault_tell(context, NODE_DISTRUSTED, rank, error);
}

static void end_tell(struct agent_pool *p, enum node_message type, int rank,
                     const struct rank_end *r)
{
    const struct node_end end = {
        .at = at_of(p, rank), .kind = (int32_t)r->kind, .number = r->number};
    tell(p->agent, type, &end, sizeof(end));
}

static void on_ending(void *context, int rank, const struct rank_end *end)
{
    pool_look(context, false);
    end_tell(context, NODE_ENDING, rank, end);
}

static void on_gone(void *context, int rank, const struct rank_end *end)
{
    struct agent_pool *p = context;
    pool_look(p, false); // an exit may come without an earlier ENDING
    end_tell(p, NODE_GONE, rank, end);
    if (p->squad->alive == 0)
        pool_drop(p, 0);
}

// Forwards stderr output. Drops it if the daemon is slow to read, so that the rank never blocks.
static void on_wrote(void *context, int rank, const void *data, size_t size)
{
    struct agent_pool *p = context;
    const struct node_rank at = at_of(p, rank);
    if (p->agent->link && !node_link_is_full(p->agent->link) && size <= NODE_WROTE_MAX)
        node_link_send(p->agent->link, NODE_WROTE, &at, sizeof(at), data, size);
}

// ---- from the daemon ---------------------------------------------------------------------------

static enum status squad_begin(struct agent_pool *p, struct error *error)
{
    struct agent *a = p->agent;
    const struct node_start *s = &p->start;
    const struct backend *b = a->config.backend;
    bool here[WORLD_SIZE_MAX] = {false};
    int devices[WORLD_SIZE_MAX], count = 0;
    for (int rank = 0; rank < s->world_size; rank++) {
        here[rank] = s->hosts[rank] == s->host;
        devices[rank] = -1;
        if (!here[rank])
            continue;
        count++;
        if (s->devices[rank] >= b->device_count)
            return error_set(error, STATUS_FAILED_PRECONDITION, "device %d of %d", s->devices[rank],
                             b->device_count);
        if (b->gpu_count > 0)
            devices[rank] = b->gpus[s->devices[rank]].index;
    }
    if (count == 0 || s->implementation != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         count == 0 ? "a pool without ranks here"
                                    : "guests run on the daemon's host alone");
    const struct squad_handler handler = {p,         on_not_started, on_frame, on_distrusted,
                                          on_ending, on_gone,        on_wrote};
    const struct squad_start start = {.generation = s->at.generation,
                                      .world_size = s->world_size,
                                      .devices = devices,
                                      .here = here};
    return squad_create(&a->host, &start, &handler, &p->squad, error);
}

static enum status on_start(struct agent *a, const void *body, struct error *error)
{
    struct agent_pool *p = calloc(1, sizeof(*p));
    struct error reason;
    if (!p)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool");
    memcpy(&p->start, body, sizeof(p->start));
    enum status status = node_start_check(&p->start, error);
    if (status == STATUS_OK &&
        (pool_find(a, p->start.at.generation) || list_length(&a->pools) >= AGENT_POOLS_MAX))
        status = error_set(error, STATUS_DATA_LOSS, "START of generation %u, or of too many",
                           p->start.at.generation);
    if (status != STATUS_OK) {
        free(p);
        return status;
    }
    p->agent = a;
    list_init(&p->node);
    list_push_back(&a->pools, &p->node);
    log_notice("pool_start world=%d generation=%u", p->start.world_size, p->start.at.generation);
    if (squad_begin(p, &reason) == STATUS_OK) {
        const struct node_start start = p->start;
        mesh_port_meet(a->mesh, &start, &a->daemon);
        return STATUS_OK;
    }
    log_error("pool_start_failed world=%d generation=%u error=%s", p->start.world_size,
              p->start.at.generation, log_quote(&(struct log_quoted){0}, reason.text));
    fault_tell(p, NODE_NOT_STARTED, -1, &reason);
    pool_drop(p, 0);
    return STATUS_OK;
}

static enum status on_case(struct agent *a, const void *body, size_t size, struct error *error)
{
    struct node_frame f;
    struct error reason;
    memcpy(&f, body, sizeof(f));
    struct agent_pool *p = pool_find(a, f.at.generation);
    if (!p || !p->squad)
        return STATUS_OK;
    if (f.at.rank < 0 || f.at.rank >= p->start.world_size ||
        p->start.hosts[f.at.rank] != p->start.host || f.type != CHANNEL_CASE)
        return error_set(error, STATUS_DATA_LOSS, "a frame of type %u for rank %d", f.type,
                         f.at.rank);
    enum status status =
        squad_send(p->squad, f.at.rank, CHANNEL_CASE, f.job, (const uint8_t *)body + sizeof(f),
                   (uint32_t)(size - sizeof(f)), NULL, 0, &reason);
    // UNAVAILABLE is no fault of the rank: its channel is closed, and its exit is reported.
    if (status != STATUS_OK && status != STATUS_UNAVAILABLE) {
        error_prefix(&reason, "rank %d does not take the case", f.at.rank);
        rank_child_close(&p->squad->children[f.at.rank]);
        fault_tell(p, NODE_DISTRUSTED, f.at.rank, &reason);
    }
    return STATUS_OK;
}

static enum status on_order(struct agent *a, enum node_message type, const void *body,
                            struct error *error)
{
    struct node_order o;
    memcpy(&o, body, sizeof(o));
    struct agent_pool *p = pool_find(a, o.at.generation);
    if (type == NODE_SIGNAL && o.number != SIGTERM && o.number != SIGCONT)
        return error_set(error, STATUS_DATA_LOSS, "an order to send signal %d", o.number);
    if (!p || !p->squad)
        return STATUS_OK;
    if (type == NODE_SIGNAL) {
        squad_signal(p->squad, o.number);
        return STATUS_OK;
    }
    mesh_port_part(a->mesh, o.at.generation);
    if (type == NODE_STOP)
        squad_stop(p->squad);
    else
        squad_kill(p->squad);
    return STATUS_OK;
}

static void absence_tell(struct agent *a, const char *text)
{
    if (strncmp(a->told, text, sizeof(a->told)) == 0)
        return;
    strncpy(a->told, text, sizeof(a->told) - 1);
    log_warning("daemon_away url=%s error=%s", a->config.daemon_text,
                log_quote(&(struct log_quoted){0}, text));
}

static enum status on_message(void *context, struct node_link *link, enum node_message type,
                              const void *body, size_t size, struct error *error)
{
    struct agent *a = context;
    struct node_fault fault;
    (void)link;
    if (!a->welcome && type == NODE_REFUSED) {
        memcpy(&fault, body, sizeof(fault));
        fault.text[sizeof(fault.text) - 1] = '\0';
        return error_set(error, STATUS_FAILED_PRECONDITION, "refused: %.400s", fault.text);
    }
    if (!a->welcome && type == NODE_WELCOME) {
        a->welcome = true;
        a->told[0] = '\0';
        log_notice("daemon_there url=%s", a->config.daemon_text);
        return STATUS_OK;
    }
    if (a->welcome && type == NODE_START)
        return on_start(a, body, error);
    if (a->welcome && type == NODE_FRAME)
        return on_case(a, body, size, error);
    if (a->welcome && (type == NODE_SIGNAL || type == NODE_KILL || type == NODE_STOP))
        return on_order(a, type, body, error);
    return error_set(error, STATUS_DATA_LOSS, "a daemon must not send %s here",
                     node_message_name(type));
}

static void parting_tell(struct agent *a, const struct error *error)
{
    char text[ERROR_TEXT_MAX];
    bool asked = a->welcome || error->status == STATUS_FAILED_PRECONDITION;
    snprintf(text, sizeof(text), "%.400s%s", error->text,
             asked || a->config.tls ? "" : "; a daemon with TLS is at tls+tcp://HOST:PORT");
    absence_tell(a, text);
}

// The connection has ended: kills all ranks. Connects again when the last one is reaped.
static void on_ended(void *context, struct node_link *link, const struct error *error)
{
    struct agent *a = context;
    parting_tell(a, error);
    node_link_destroy(link);
    a->link = NULL;
    a->welcome = false;
    LIST_FOREACH (node, &a->pools) {
        struct agent_pool *p = LIST_ENTRY(node, struct agent_pool, node);
        mesh_port_part(a->mesh, p->start.at.generation);
        squad_kill(p->squad);
    }
    if (list_empty(&a->pools))
        dial_soon(a, DIAL_AGAIN_S);
}

// ---- the connection ----------------------------------------------------------------------------

static void hello_send(struct agent *a)
{
    struct node_hello hello = {.magic = NODE_MAGIC, .version = NODE_VERSION};
    node_build_id(hello.build_id);
    memcpy(hello.token, a->config.token.text, sizeof(hello.token));
    memcpy(hello.name, a->config.name, sizeof(hello.name));
    memcpy(hello.backend, a->config.backend->name, sizeof(hello.backend));
    hello.device_count = a->config.backend->device_count;
    hello.mesh_port = (uint32_t)mesh_port_number(a->mesh);
    if (a->config.mesh_address)
        strncpy(hello.mesh_address, a->config.mesh_address, sizeof(hello.mesh_address) - 1);
    node_link_send(a->link, NODE_HELLO, &hello, sizeof(hello), NULL, 0);
    explicit_bzero(hello.token, sizeof(hello.token));
}

static int connect_wait(const struct addrinfo *address)
{
    int number = 0;
    socklen_t size = sizeof(number);
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0)
        number = errno;
    if (number == EINPROGRESS && poll(&wait, 1, DIAL_MAX_MS) != 1)
        number = ETIMEDOUT;
    else if (number == EINPROGRESS)
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size);
    if (number == 0)
        return fd;
    close(fd);
    errno = number;
    return -1;
}

// True if ranks of an earlier agent are still alive; this agent cannot reap them.
static bool leftovers_are(struct agent *a)
{
    const struct confinement *c = &a->config.backend->confinement;
    int count = leftovers_count(a->config.backend->program, c->user.set ? c->user.uid : geteuid());
    if (count > 0)
        absence_tell(a, "ranks of an agent before this one have not ended yet");
    return count > 0;
}

// The daemon may have another token than before. A file without a token changes nothing: a pipe of
// the shell that started the agent can be read only once.
static void token_reread(struct agent *a)
{
    struct error error;
    struct token token;
    if (token_read(a->config.token_file, &token, &error) != STATUS_OK)
        return;
    a->config.token = token;
    token_wipe(&token);
}

static enum status tls_files_read(const struct tls_connect_files *files, struct tls **tls,
                                  struct error *error)
{
    enum status status = plain_file_check("tls-ca", files->authorities, error);
    if (status == STATUS_OK)
        status = plain_file_check("tls-certificate", files->certificate, error);
    if (status == STATUS_OK)
        status = plain_file_check("tls-key", files->key, error);
    return status == STATUS_OK ? tls_connect_create(files, tls, error) : status;
}

// The files may have been renewed. Files that cannot be used change nothing, such as a new
// certificate whose key is not written yet.
static void tls_reread(struct agent *a)
{
    struct error error = {.text = ""};
    struct tls *tls;
    if (!a->config.tls)
        return;
    if (tls_files_read(&a->config.tls_files, &tls, &error) == STATUS_OK) {
        tls_release(a->config.tls);
        a->config.tls = tls;
    } else if (strcmp(a->told_files, error.text) != 0) {
        log_warning("tls_files error=%s action=kept_those_before",
                    log_quote(&(struct log_quoted){0}, error.text));
    }
    strcpy(a->told_files, error.text);
}

// Connects with a blocking wait, which delays nothing because this agent has no pools.
static void on_dial(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)events;
    struct agent *a = watcher->data;
    const struct addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const struct node_link_handler handler = {a, on_message, on_ended};
    struct addrinfo *list = NULL;
    int fd = -1;
    dial_soon(a, DIAL_AGAIN_S);
    if (rank_host_reap_strays(&a->host) > 0 || leftovers_are(a))
        return;
    int result = getaddrinfo(a->config.daemon.host, a->config.daemon.port, &hints, &list);
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        errno = 0;
        fd = connect_wait(at);
        if (fd >= 0)
            memcpy(&a->daemon, at->ai_addr, at->ai_addrlen);
    }
    if (fd < 0)
        absence_tell(a, result ? gai_strerror(result) : strerror(errno));
    if (list)
        freeaddrinfo(list);
    if (fd < 0)
        return;
    tls_reread(a);
    a->link = node_link_create(loop, fd, &handler, a->config.tls,
                               a->config.tls ? a->config.daemon.host : NULL);
    if (!a->link)
        return;
    ev_timer_stop(loop, &a->dial);
    token_reread(a);
    hello_send(a);
}

static void dial_soon(struct agent *a, double after_s)
{
    ev_timer_stop(a->loop, &a->dial);
    ev_timer_set(&a->dial, after_s, 0.);
    ev_timer_start(a->loop, &a->dial);
}

// ---- sockets between ranks ---------------------------------------------------------------------

static void on_connected(void *context, int pool, uint32_t generation, int rank, int peer, int fd)
{
    struct agent_pool *p = pool_find(context, generation);
    (void)pool;
    if (p && p->squad)
        squad_connect(p->squad, rank, peer, fd);
    else
        close(fd);
}

static void on_not_connected(void *context, int pool, uint32_t generation,
                             const struct error *error)
{
    struct agent_pool *p = pool_find(context, generation);
    (void)pool;
    if (p && p->squad)
        squad_fail(p->squad, error);
}

// ---- life --------------------------------------------------------------------------------------

enum status agent_create(struct ev_loop *loop, const struct agent_config *config,
                         struct agent **agent, struct error *error)
{
    struct agent *a = calloc(1, sizeof(*a));
    if (!a)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the agent");
    const struct mesh_handler mesh = {a, on_connected, on_not_connected};
    a->loop = loop;
    a->config = *config;
    if (a->config.tls)
        tls_hold(a->config.tls);
    list_init(&a->pools);
    ev_timer_init(&a->dial, on_dial, 0., 0.);
    ev_timer_init(&a->look, on_look, LOOK_S, LOOK_S);
    a->dial.data = a->look.data = a;
    enum status status = rank_host_init(&a->host, loop, config->backend->program, &a->no_guests,
                                        &config->backend->confinement, error);
    if (status == STATUS_OK)
        status = mesh_port_create(loop, NULL, config->mesh_port, &mesh, &a->mesh, error);
    if (status != STATUS_OK) {
        agent_destroy(a);
        return status;
    }
    ev_timer_start(loop, &a->dial);
    ev_timer_start(loop, &a->look);
    *agent = a;
    return STATUS_OK;
}

void agent_destroy(struct agent *a)
{
    if (!a)
        return;
    uint64_t deadline_ns = clock_now_ns() + REAP_MAX_NS;
    ev_timer_stop(a->loop, &a->look);
    LIST_FOREACH (node, &a->pools)
        squad_kill(LIST_ENTRY(node, struct agent_pool, node)->squad);
    while (!list_empty(&a->pools))
        pool_drop(LIST_ENTRY(list_first(&a->pools), struct agent_pool, node), deadline_ns);
    ev_timer_stop(a->loop, &a->dial);
    rank_host_fini(&a->host, deadline_ns);
    node_link_destroy(a->link);
    mesh_port_destroy(a->mesh);
    tls_release(a->config.tls);
    token_wipe(&a->config.token);
    free(a);
}
