// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/service.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/duration.h"
#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/actions.h"
#include "daemon/service/alarm.h"
#include "daemon/service/answer.h"
#include "daemon/service/answer_cache.h"
#include "daemon/service/answer_log.h"
#include "daemon/service/core_config.h"
#include "daemon/service/events.h"
#include "daemon/service/gate.h"
#include "daemon/service/metrics.h"
#include "daemon/service/open_requests.h"
#include "daemon/service/order.h"
#include "daemon/service/rank_events.h"
#include "daemon/service/reasons.h"
#include "daemon/service/reply.h"
#include "daemon/service/service_state.h"
#include "daemon/service/status.h"
#include "daemon/service/tasks.h"
#include "daemon/service/watchers.h"

static void on_deadline(void *context)
{
    struct service *s = context;
    core_time(s->core, clock_now_ns());
    actions_do(s);
}

// ---- requests ----------------------------------------------------------------------------------

// Answers a repeated request with the stored answer.
static void request_answer_again(struct service *s, struct exchange *exchange,
                                 const struct peer *peer, const struct wire_request *request,
                                 int place)
{
    const void *data;
    size_t size;
    struct error error;
    if (answer_cache_find(&s->answers, place, &data, &size)) {
        server_reply(exchange, data, size);
        return;
    }
    error_set(&error, STATUS_ALREADY_EXISTS,
              "this request has been answered, and its answer is no longer stored; a new "
              "request needs a new id");
    answer_refuse(exchange, peer, request, &error);
}

static void request_admitted(struct service *s, struct exchange *exchange, const struct peer *peer,
                             const struct wire_request *request, const struct job_spec *spec,
                             uint64_t timeout_ns, const struct admission *admission)
{
    struct error error;
    switch (admission->kind) {
    case ADMISSION_NEW:
        tasks_begin(s->tasks, admission->index, request, spec, timeout_ns, exchange, peer);
        answer_log_admitted(tasks_get(s->tasks, admission->index));
        events_admitted(s->events, tasks_get(s->tasks, admission->index));
        if (request->attends)
            tasks_set_segments(s->tasks, admission->index,
                               deposits_take(s->deposits, peer, request));
        break;
    case ADMISSION_ATTACHED:
        if (tasks_attach(s->tasks, admission->index, exchange, peer, &error) != STATUS_OK)
            answer_refuse(exchange, peer, request, &error);
        break;
    case ADMISSION_ANSWERED:
        request_answer_again(s, exchange, peer, request, admission->index);
        break;
    }
}

// Checks a client's tensors. A repeated request does not need them again.
static enum status tensors_check(const struct service *s, const struct peer *peer,
                                 const struct wire_request *request, const struct job_spec *spec,
                                 struct error *error)
{
    int64_t bytes = 0;
    if (!request->attends || core_knows(s->core, &request->id))
        return STATUS_OK;
    enum status status = deposits_check(s->deposits, peer, request, &bytes, error);
    return status == STATUS_OK ? gate_check_tensors(&s->config, spec, bytes, error) : status;
}

static enum status job_submit(struct service *s, const struct peer *peer,
                              const struct wire_request *request, const struct job_spec *spec,
                              struct core_request *job, struct admission *admission,
                              struct error *error)
{
    *job = gate_core_request(&s->config, request, spec, peer);
    enum status status = gate_check_job(&s->config, spec, error);
    if (status == STATUS_OK)
        status = tensors_check(s, peer, request, spec, error);
    s->tally.refused += status != STATUS_OK;
    if (status == STATUS_OK)
        status = core_submit(s->core, clock_now_ns(), job, admission, error);
    if (status != STATUS_OK)
        reasons_explain_refusal(&s->reasons, job, error);
    return status;
}

static void request_run(struct service *s, struct exchange *exchange, const struct peer *peer,
                        const struct wire_request *request)
{
    struct job_spec spec;
    struct core_request job;
    struct admission admission;
    struct error error;
    enum status status = gate_read_job(request, &spec, &error);
    s->tally.refused += status != STATUS_OK;
    if (status == STATUS_OK)
        status = job_submit(s, peer, request, &spec, &job, &admission, &error);
    if (status == STATUS_OK)
        request_admitted(s, exchange, peer, request, &spec, job.timeout_ns, &admission);
    else
        answer_refuse(exchange, peer, request, &error);
    actions_do(s);
}

static void request_cancel(struct service *s, struct exchange *exchange, const struct peer *peer,
                           const struct wire_request *request)
{
    struct error error;
    struct wire_reply done = {.id = request->id, .method = METHOD_CANCEL};
    uint32_t user = gate_is_ruler(&s->config, peer) ? CORE_ANY_USER : peer->uid;
    enum status status = core_cancel(s->core, clock_now_ns(), &request->cancel, user, &error);
    answer_log_cancel(&request->cancel, peer, status);
    reply_done(exchange, request, status == STATUS_OK ? &done : NULL, &error);
    actions_do(s);
}

// Orders a reload; the exchange waits until the settings are read.
static enum status order_reload(struct service *s, struct exchange *exchange,
                                const struct wire_request *request, struct error *error)
{
    struct reload_order *kept;
    enum status status = reload_orders_keep(&s->reloads, exchange, request, &kept, error);
    if (status != STATUS_OK)
        return status;
    status = s->reload(s->context, &kept->follows, error);
    if (status != STATUS_OK)
        kept->exchange = NULL;
    return status;
}

static void request_order(struct service *s, struct exchange *exchange, const struct peer *peer,
                          const struct wire_request *request)
{
    struct error error;
    struct wire_reply done = {.id = request->id, .method = METHOD_ORDER};
    enum status status = gate_check_ruler(&s->config, peer, &error);
    bool reloads = request->order.kind == ORDER_RELOAD;
    if (status == STATUS_OK)
        status = reloads ? order_reload(s, exchange, request, &error)
                         : order_do(s->core, clock_now_ns(), &s->config, &request->order,
                                    &done.done, &error);
    s->moved = true;
    answer_log_order(&request->order, peer, status);
    if (!reloads || status != STATUS_OK)
        reply_done(exchange, request, status == STATUS_OK ? &done : NULL, &error);
    actions_do(s);
}

static void request_describe(struct service *s, struct exchange *exchange, const struct peer *peer,
                             const struct wire_request *request)
{
    (void)peer;
    struct wire_reply reply = {
        .id = request->id, .method = METHOD_DESCRIBE, .description = s->config.description};
    reply_send(exchange, &reply);
}

char *service_metrics(struct service *s)
{
    struct wire_pool pools[POOLS_MAX];
    struct wire_status status = {0};
    status_fill(s, &status, pools);
    return metrics_text(&s->config.description, &status, &s->tally);
}

const char *service_obstacle(const struct service *s)
{
    return core_obstacle(s->core);
}

static void request_status(struct service *s, struct exchange *exchange, const struct peer *peer,
                           const struct wire_request *request)
{
    struct wire_pool pools[POOLS_MAX];
    struct wire_open_request open[OPEN_LISTED_MAX];
    struct wire_reply reply = {.id = request->id, .method = METHOD_STATUS};
    status_fill(s, &reply.pools, pools);
    reply.pools.open = open;
    reply.pools.open_count = open_requests_list(s->tasks, s->config.description.queue_max, s->crews,
                                                peer, gate_is_ruler(&s->config, peer), open);
    reply_send(exchange, &reply);
}

static void request_watch(struct service *s, struct exchange *exchange, const struct peer *peer,
                          const struct wire_request *request)
{
    struct error error;
    if (watchers_take(s->watchers, exchange, request, peer, gate_is_ruler(&s->config, peer),
                      &error) != STATUS_OK)
        answer_refuse(exchange, peer, request, &error);
}

static void on_request(void *context, struct exchange *exchange, const struct peer *peer,
                       const void *data, size_t size)
{
    static void (*const methods[])(struct service *, struct exchange *, const struct peer *,
                                   const struct wire_request *) = {
        [METHOD_RUN] = request_run,       [METHOD_DESCRIBE] = request_describe,
        [METHOD_STATUS] = request_status, [METHOD_CANCEL] = request_cancel,
        [METHOD_ORDER] = request_order,   [METHOD_WATCH] = request_watch,
    };
    struct service *s = context;
    struct wire_request request = {0};
    struct error error;
    // Without the token the request is not decoded, and no other mistake in it is reported.
    if (gate_check_token(&s->config, peer, data, size, &request.id, &error) != STATUS_OK) {
        s->tally.refused++;
        server_strike(exchange);
        reply_status(exchange, &request, &error);
        return;
    }
    enum status status = wire_decode_request(data, size, &request, &error);
    token_wipe(&request.token);
    if (status == STATUS_OK)
        status = gate_check_peer(&s->config, peer, &error);
    if (status != STATUS_OK) {
        s->tally.refused++;
        answer_refuse(exchange, peer, &request, &error);
        return;
    }
    methods[request.method](s, exchange, peer, &request);
}

static void on_client_gone(void *context, uint32_t client)
{
    struct service *s = context;
    const int *slots;
    int count = tasks_client_gone(s->tasks, client, &slots);
    watchers_client_gone(s->watchers, client);
    core_abandon(s->core, clock_now_ns(), slots, count);
    actions_do(s);
}

struct server_handler service_handler(struct service *s)
{
    return (struct server_handler){
        .context = s, .request = on_request, .client_gone = on_client_gone};
}

// ---- life --------------------------------------------------------------------------------------

enum status service_check_peer(void *service, const struct peer *peer, struct error *error)
{
    const struct service *s = service;
    return gate_check_peer(&s->config, peer, error);
}

void service_set_deposits(struct service *s, struct deposits *deposits)
{
    s->deposits = deposits;
}

void service_limit(struct service *s, const struct service_limits *limits)
{
    s->config.user_queue_max = limits->user_queue_max;
    s->config.allowed = limits->allowed;
    s->config.administrators = limits->administrators;
    s->config.subjects = limits->subjects;
    s->config.token = limits->token;
    s->config.idle_timeout_ns = limits->idle_timeout_ns;
    s->config.description.memory_bytes_max = limits->memory_bytes_max;
    description_set_timeouts(&s->config.description, limits->timeout_max_ns);
    core_limit(s->core, clock_now_ns(),
               &(struct core_limits){.user_queue_max = limits->user_queue_max,
                                     .idle_timeout_ns = limits->idle_timeout_ns,
                                     .user = limits->user,
                                     .timeout_max_ns = limits->timeout_max_ns,
                                     .memory_max = (uint64_t)limits->memory_bytes_max});
    actions_do(s);
}

void service_on_reload(struct service *s,
                       enum status (*reload)(void *context, bool *follows, struct error *error))
{
    s->reload = reload;
}

void service_reloaded(struct service *s, const struct error *error, enum wire_reload outcome)
{
    reload_orders_answer(&s->reloads, error, outcome);
}

void service_drain(struct service *s)
{
    const struct error drains = {STATUS_UNAVAILABLE, "the daemon is draining; its next start reads "
                                                     "the settings"};
    s->moved = true;
    reload_orders_end(&s->reloads, &drains);
    core_drain(s->core, clock_now_ns());
    actions_do(s);
}

void service_stop(struct service *s)
{
    s->stopping = true;
    service_drain(s);
    for (int slot = 0; slot < s->config.description.queue_max; slot++) {
        const struct task *task = tasks_get(s->tasks, slot);
        struct error error;
        if (!task)
            continue;
        core_cancel(s->core, clock_now_ns(), &task->id, CORE_ANY_USER, &error);
        actions_do(s);
    }
}

struct crews *service_crews(struct service *s)
{
    return s->crews;
}

void service_host_lost(struct service *s, int host)
{
    s->moved = true;
    core_host_lost(s->core, clock_now_ns(), host);
    actions_do(s);
}

void service_host_back(struct service *s, int host)
{
    s->moved = true;
    core_host_back(s->core, clock_now_ns(), host);
    actions_do(s);
}

void service_tick(struct service *s)
{
    crews_reap_strays(s->crews);
}

void service_counts(struct service *s, int *queued, int *running, int *pools)
{
    struct wire_pool table[POOLS_MAX];
    struct wire_status status = {0};
    core_status(s->core, &status, table);
    *queued = status.queued;
    *running = status.running;
    *pools = 0;
    for (int i = 0; i < status.pool_count; i++)
        *pools += table[i].state == POOL_IDLE || table[i].state == POOL_RUNNING;
}

enum status service_create(struct ev_loop *loop, const struct service_config *config,
                           void (*exited)(void *context), void *context, struct service **service,
                           struct error *error)
{
    struct service *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the service");
    s->config = *config;
    s->exited = exited;
    s->context = context;
    s->tally.began_ns = clock_now_ns();
    alarm_init(&s->deadline, loop, on_deadline, s);
    s->core = core_config_make(config);
    enum status status = tasks_create(config->description.queue_max, &s->tasks, error);
    if (status == STATUS_OK)
        status = events_create(&s->events, error);
    if (status == STATUS_OK)
        status = watchers_create(loop, s->events, &s->watchers, error);
    if (status == STATUS_OK && !(reasons_init(&s->reasons, &s->config) && s->core))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the pool core");
    const struct crew_handler handler = rank_events_handler(s);
    if (status == STATUS_OK)
        status = crews_create(loop, config->rank_program, config->guests, &s->config.confinement,
                              &handler, &s->crews, error);
    if (status != STATUS_OK) {
        service_destroy(s);
        return status;
    }
    s->reasons.core = s->core;
    s->reasons.crews = s->crews;
    *service = s;
    return STATUS_OK;
}

void service_destroy(struct service *s)
{
    if (!s)
        return;
    alarm_fini(&s->deadline);
    watchers_destroy(s->watchers);
    events_destroy(s->events);
    crews_destroy(s->crews);
    core_destroy(s->core);
    tasks_destroy(s->tasks);
    token_wipe(&s->config.token);
    answer_cache_clear(&s->answers);
    reasons_fini(&s->reasons);
    free(s);
}
