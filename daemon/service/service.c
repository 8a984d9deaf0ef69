// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/duration.h"
#include "common/log.h"
#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/answer.h"
#include "daemon/service/answer_cache.h"
#include "daemon/service/answer_log.h"
#include "daemon/service/core_config.h"
#include "daemon/service/fates.h"
#include "daemon/service/gate.h"
#include "daemon/service/loss_reasons.h"
#include "daemon/service/open_requests.h"
#include "daemon/service/order.h"
#include "daemon/service/pool_text.h"
#include "daemon/service/reply.h"
#include "daemon/service/tasks.h"

struct service {
    struct ev_loop *loop;
    struct service_config config;
    struct core *core;
    struct crews *crews;
    void (*exited)(void *context), (*reload)(void *context);
    void *context;
    ev_timer deadline;
    uint64_t armed_ns; // what `deadline` is set to; UINT64_MAX: nothing
    uint64_t began_ns;
    uint64_t passed, failed, unverified, refused; // refused: before the core was asked
    bool stopping;
    struct tasks *tasks;       // what the core's slots stand for
    struct deposits *deposits; // clients' tensors
    struct answer_cache answers;
    struct loss_reasons loss_reasons;
    bool acting;
    struct fates fates;
    // Why ranks could not be brought up, last: by implementation and world size.
    struct error (*start_errors)[WORLD_SIZE_MAX + 1];
};

// ---- the core's actions ------------------------------------------------------------------------

// The crew that an action names, while it is the one meant.
static struct crew *crew_of(struct service *s, const struct action *a)
{
    struct crew *crew = a->pool >= 0 ? crews_get(s->crews, a->pool) : NULL;
    return crew && crew->generation == a->generation && crew->world_size > 0 ? crew : NULL;
}

static void on_start(struct service *s, const struct action *a)
{
    int gpus[DEVICES_MAX];
    struct error error;
    const struct crew_start start = {
        a->generation, a->implementation, a->world_size,
        order_gpus(&s->config.description, a->devices, a->world_size, gpus)};
    fates_start(&s->fates, a);
    log_notice("pool_start implementation=%s world=%d instance=%d generation=%u devices=0x%" PRIx64
               " spare=%d",
               guests_name(s->config.guests, a->implementation), a->world_size, a->instance,
               a->generation, a->devices, a->spare);
    if (crew_start(s->crews, a->pool, &start, &error) == STATUS_OK)
        return;
    log_error("pool_start_failed world=%d generation=%u error=%s", a->world_size, a->generation,
              log_quote(&(struct log_quoted){0}, error.text));
    s->start_errors[a->implementation][a->world_size] = error;
    core_start_failed(s->core, clock_now_ns(), a->pool, a->generation);
}

static void on_run(struct service *s, const struct action *a)
{
    struct crew *crew = crew_of(s, a);
    const struct task *task = tasks_get(s->tasks, a->slot);
    tasks_run(s->tasks, a->slot, a->pool, a->generation);
    answer_log_run(task, a);
    const struct crew_task given = {&task->spec, task->attends ? &task->places : NULL,
                                    task->segments.given_fd, task->segments.wanted_fd};
    if (crew)
        crew_run(crew, a->job, &given);
}

static void on_kill(struct service *s, const struct action *a)
{
    struct crew *crew = crew_of(s, a);
    log_notice("pool_kill world=%d instance=%d generation=%u rank=%d reason=%s", a->world_size,
               a->instance, a->generation, a->rank, log_quote(&(struct log_quoted){0}, a->reason));
    if (!crew)
        return;
    pool_text_late(crew, &s->start_errors[a->implementation][a->world_size]);
    fates_kill(&s->fates, a, crew);
    crew_kill(crew);
}

// What belongs to an answer and the core does not know.
static const char *detail_of(const struct service *s, const struct action *a,
                             const struct task *task, struct error *stuck)
{
    if (a->cause == CAUSE_STUCK) {
        const struct core_stuck rank = {a->pool, a->generation, a->rank,
                                        __builtin_ctzll(a->devices)};
        pool_text_stuck(s->crews, &s->config.description, a->world_size, &rank, stuck);
        return stuck->text;
    }
    return a->cause == CAUSE_POISON
               ? loss_reasons_find(&s->loss_reasons, job_spec_hash(&task->spec))
               : s->start_errors[a->implementation][a->world_size].text;
}

static void on_answer(struct service *s, const struct action *a)
{
    const struct task *task = tasks_get(s->tasks, a->slot);
    struct crew *crew = crew_of(s, a);
    struct wire_reply reply = {.id = task->id};
    if (a->status == STATUS_OK && crew) {
        answer_result(a, crew, &reply);
        s->passed += reply.status == STATUS_OK && reply.result.verdict == VERDICT_PASS;
        s->failed += reply.status == STATUS_OK && reply.result.verdict == VERDICT_FAIL;
        s->unverified += reply.status == STATUS_OK && reply.result.verdict == VERDICT_UNVERIFIED;
    } else {
        struct error stuck;
        answer_failure(a, a->cause == CAUSE_STUCK ? NULL : crew, answer_limit_ns(task, a),
                       detail_of(s, a, task, &stuck), &reply);
        if (a->cause == CAUSE_RANK_EXITED || a->cause == CAUSE_RANK_FAILED ||
            a->cause == CAUSE_PEER_LOST)
            loss_reasons_note(&s->loss_reasons, job_spec_hash(&task->spec), reply.message);
        if (s->stopping && a->cause == CAUSE_CANCELLED)
            answer_stopped(&reply);
    }
    answer_log(task, a, &reply);
    size_t size = 0;
    void *data = reply_encode(&reply, &size);
    if (data && a->memory >= 0)
        answer_cache_keep(&s->answers, a->memory, data, size);
    struct segments segments = task->segments;
    tasks_answer(s->tasks, a->slot, data, size);
    deposits_release(s->deposits, &segments);
    free(data);
    free(reply.failure.ranks);
}

static void action_do(struct service *s, const struct action *a)
{
    switch (a->kind) {
    case ACTION_START:
        on_start(s, a);
        break;
    case ACTION_RUN:
        on_run(s, a);
        break;
    case ACTION_ANSWER:
        on_answer(s, a);
        break;
    case ACTION_KILL:
        on_kill(s, a);
        break;
    case ACTION_STUCK:
        pool_text_log_stuck(s->crews, &s->config.description, a);
        break;
    case ACTION_EXIT:
        s->exited(s->context);
        break;
    }
}

static void deadline_arm(struct service *s)
{
    uint64_t next_ns = core_next_time(s->core);
    if (next_ns == s->armed_ns)
        return;
    s->armed_ns = next_ns;
    ev_timer_stop(s->loop, &s->deadline);
    if (next_ns == UINT64_MAX)
        return;
    uint64_t now_ns = clock_now_ns();
    double delay = next_ns > now_ns ? (double)(next_ns - now_ns) / (double)NS_PER_S : 0.;
    ev_now_update(s->loop); // timers count from the time the loop last looked
    ev_timer_set(&s->deadline, delay, 0.);
    ev_timer_start(s->loop, &s->deadline);
}

// After each event. One that is reported while an action is carried out leaves its actions to the
// round that is under way.
static void actions_do(struct service *s)
{
    struct action action;
    if (s->acting)
        return;
    s->acting = true;
    while (core_next_action(s->core, &action))
        action_do(s, &action);
    s->acting = false;
    deadline_arm(s);
}

static void on_deadline(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct service *s = watcher->data;
    s->armed_ns = UINT64_MAX;
    core_time(s->core, clock_now_ns());
    actions_do(s);
}

// ---- events of ranks ---------------------------------------------------------------------------

static void on_ready(void *context, int pool, uint32_t generation, int rank)
{
    struct service *s = context;
    const struct crew *crew = crews_get(s->crews, pool);
    if (crew_is_ready(crew))
        log_notice("pool_ready world=%d generation=%u", crew->world_size, crew->generation);
    core_rank_ready(s->core, clock_now_ns(), pool, generation, rank);
    actions_do(s);
}

static void on_reported(void *context, int pool, uint32_t generation, int rank, uint64_t job)
{
    struct service *s = context;
    core_rank_reported(s->core, clock_now_ns(), pool, generation, rank, job);
    actions_do(s);
}

static void start_error_note(struct service *s, const struct crew *crew, int rank)
{
    const struct rank_process *r = &crew->ranks[rank];
    if (!r->said_ready && !crew->killed)
        pool_text_not_ready(crew, rank, &s->start_errors[crew->implementation][crew->world_size]);
}

static void on_failed(void *context, int pool, uint32_t generation, int rank, int kind, int peer)
{
    struct service *s = context;
    start_error_note(s, crews_get(s->crews, pool), rank);
    core_rank_failed(s->core, clock_now_ns(), pool, generation, rank, kind, peer);
    actions_do(s);
}

static void on_ending(void *context, int pool, uint32_t generation, int rank, bool from_outside)
{
    struct service *s = context;
    start_error_note(s, crews_get(s->crews, pool), rank);
    core_rank_ending(s->core, clock_now_ns(), pool, generation, rank, from_outside);
    actions_do(s);
}

static void on_exited(void *context, int pool, uint32_t generation, int rank, bool from_outside)
{
    struct service *s = context;
    start_error_note(s, crews_get(s->crews, pool), rank);
    fates_exit(&s->fates, crews_get(s->crews, pool), rank);
    core_rank_exited(s->core, clock_now_ns(), pool, generation, rank, from_outside);
    actions_do(s);
}

// ---- requests ----------------------------------------------------------------------------------

// The same request has been answered before.
static void request_recall(struct service *s, struct exchange *exchange, const struct peer *peer,
                           const struct wire_request *request, int place)
{
    const void *data;
    size_t size;
    struct error error;
    if (answer_cache_find(&s->answers, place, &data, &size)) {
        server_reply(exchange, data, size);
        return;
    }
    error_set(&error, STATUS_ALREADY_EXISTS,
              "this request has been answered, and its answer is not kept any more; a new request "
              "needs a new id");
    answer_refuse(exchange, peer, request, &error);
}

static void request_admitted(struct service *s, struct exchange *exchange, const struct peer *peer,
                             const struct wire_request *request, const struct job_spec *spec,
                             uint64_t timeout_ns, const struct admission *admission)
{
    struct error error;
    switch (admission->kind) {
    case ADMISSION_NEW:
        tasks_begin(s->tasks, admission->place, request, spec, timeout_ns, exchange, peer);
        answer_log_admitted(tasks_get(s->tasks, admission->place));
        if (request->attends)
            tasks_set_segments(s->tasks, admission->place,
                               deposits_take(s->deposits, peer, request));
        break;
    case ADMISSION_ATTACHED:
        if (tasks_attach(s->tasks, admission->place, exchange, peer, &error) != STATUS_OK)
            answer_refuse(exchange, peer, request, &error);
        break;
    case ADMISSION_ANSWERED:
        request_recall(s, exchange, peer, request, admission->place);
        break;
    }
}

// Why the core refuses a case that has killed pools, or for which there is none: what is known.
static void refusal_explain(const struct service *s, const struct core_request *job,
                            struct error *error)
{
    struct core_stuck stuck;
    struct error told = *error;
    if (error->status == STATUS_UNAVAILABLE &&
        core_is_stuck(s->core, job->implementation, job->world_size, &stuck))
        pool_text_stuck(s->crews, &s->config.description, job->world_size, &stuck, error);
    if (error->status != STATUS_FAILED_PRECONDITION)
        return;
    const char *loss = loss_reasons_find(&s->loss_reasons, job->case_hash);
    if (core_is_poison(s->core, job->case_hash) && loss[0])
        error_set(error, told.status, "%s; the last time: %s", told.text, loss);
}

// A request that is made again needs its tensors no more.
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
    s->refused += status != STATUS_OK;
    if (status == STATUS_OK)
        status = core_submit(s->core, clock_now_ns(), job, admission, error);
    if (status != STATUS_OK)
        refusal_explain(s, job, error);
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
    s->refused += status != STATUS_OK;
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

static void request_order(struct service *s, struct exchange *exchange, const struct peer *peer,
                          const struct wire_request *request)
{
    struct error error;
    struct wire_reply done = {.id = request->id, .method = METHOD_ORDER};
    enum status status = gate_check_ruler(&s->config, peer, &error);
    if (status == STATUS_OK && request->order.kind == ORDER_RELOAD)
        s->reload(s->context);
    else if (status == STATUS_OK)
        status = order_do(s->core, clock_now_ns(), &s->config.description, &request->order,
                          &done.done, &error);
    answer_log_order(&request->order, peer, status);
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

static void status_fill(struct service *s, struct wire_status *status, struct wire_pool *pools)
{
    core_status(s->core, status, pools);
    status->uptime_ns = clock_now_ns() - s->began_ns;
    status->passed = s->passed;
    status->failed = s->failed;
    status->unverified = s->unverified;
    status->devices_out = pool_text_devices(&s->config.description, core_devices_out(s->core));
    status->refused += s->refused;
    fates_tell(&s->fates, pools, status->pool_count);
    pool_text_status(&s->config.description, s->start_errors, pools, status->pool_count);
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

static void on_request(void *context, struct exchange *exchange, const struct peer *peer,
                       const void *data, size_t size)
{
    static void (*const methods[])(struct service *, struct exchange *, const struct peer *,
                                   const struct wire_request *) = {
        [METHOD_RUN] = request_run,       [METHOD_DESCRIBE] = request_describe,
        [METHOD_STATUS] = request_status, [METHOD_CANCEL] = request_cancel,
        [METHOD_ORDER] = request_order,
    };
    struct service *s = context;
    struct wire_request request = {0};
    struct error error;
    // Nothing is decoded for whoever has not shown the token, and nothing else that is wrong is
    // told.
    if (gate_check_token(&s->config, peer, data, size, &request.id, &error) != STATUS_OK) {
        s->refused++;
        server_strike(exchange);
        reply_status(exchange, &request, &error);
        return;
    }
    enum status status = wire_decode_request(data, size, &request, &error);
    token_wipe(&request.token);
    if (status == STATUS_OK)
        status = gate_check_peer(&s->config, peer, &error);
    if (status != STATUS_OK) {
        s->refused++;
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

void service_on_reload(struct service *s, void (*reload)(void *context))
{
    s->reload = reload;
}

void service_drain(struct service *s)
{
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
    s->loop = loop;
    s->config = *config;
    s->exited = exited;
    s->context = context;
    s->armed_ns = UINT64_MAX;
    s->began_ns = clock_now_ns();
    ev_init(&s->deadline, on_deadline);
    s->deadline.data = s;
    s->core = core_config_make(config);
    s->start_errors = calloc((size_t)config->guests->count + 1, sizeof(*s->start_errors));
    enum status status = tasks_create(config->description.queue_max, &s->tasks, error);
    if (status == STATUS_OK && !(s->core && s->start_errors))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the pool core");
    const struct crew_handler handler = {s, on_ready, on_reported, on_failed, on_ending, on_exited};
    if (status == STATUS_OK)
        status = crews_create(loop, config->rank_program, config->guests, &s->config.confinement,
                              &handler, &s->crews, error);
    if (status != STATUS_OK) {
        service_destroy(s);
        return status;
    }
    *service = s;
    return STATUS_OK;
}

void service_destroy(struct service *s)
{
    if (!s)
        return;
    ev_timer_stop(s->loop, &s->deadline);
    crews_destroy(s->crews);
    core_destroy(s->core);
    tasks_destroy(s->tasks);
    token_wipe(&s->config.token);
    answer_cache_clear(&s->answers);
    free(s->start_errors);
    free(s);
}
