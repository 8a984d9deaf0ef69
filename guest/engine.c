// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "guest/state.h"
#include "rank/swap.h"

// Time for which a rank whose function has failed waits for the outcomes of the other ranks. Their
// functions may wait forever in an exchange with this rank; then it reports the failure alone.
#define STEP_GRACE_NS (2 * NS_PER_S)
#define STEP_LOOK_MS  100

const struct cpattn_guest *guest_program;

struct guest {
    struct engine base;
    struct engine_ops ops; // optional operations are NULL unless the own engine has them
    struct engine *own;    // the CPU or CUDA engine that provides inputs, memory and judge
    struct cpattn_guest_place place;
    pid_t pid;
    int folder; // descriptor of the working directory, to which each call returns
};

static struct guest *self(struct engine *e)
{
    return (struct guest *)e;
}

// ---- operations that the own engine carries out ----

static enum status guest_reserve(struct engine *e, struct job *j, size_t *host_bytes,
                                 struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->reserve(own, j, host_bytes, error);
}

static enum status guest_admit(struct engine *e, const struct job *j, struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->admit ? own->ops->admit(own, j, error) : STATUS_OK;
}

static enum status guest_prepare(struct engine *e, struct job *j, struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->prepare(own, j, error);
}

static enum status guest_verify(struct engine *e, struct job *j, struct error *error)
{
    struct engine *own = self(e)->own;
    j->foreign = true;
    return own->ops->verify(own, j, error);
}

// Waits for the device. After a failed function it only checks the device, because work there may
// wait for other ranks forever; an error of the device is added to the text of the failure.
static enum status guest_wait(struct engine *e, const struct cpattn_guest_job *job, bool failed,
                              struct error *error)
{
    struct engine *own = self(e)->own;
    enum status status = own->ops->wait ? own->ops->wait(own, failed, error) : STATUS_OK;
    if (status != STATUS_OK && failed)
        error_prefix(error, "%.300s; then", job->text);
    return status;
}

static bool guest_read(struct engine *e, const void *from, size_t bytes, void *to)
{
    struct engine *own = self(e)->own;
    return own->ops->read(own, from, bytes, to);
}

static void *guest_queue(struct engine *e)
{
    struct engine *own = self(e)->own;
    return own->ops->queue(own);
}

static enum status guest_device_wait(struct engine *e, bool look, struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->wait(own, look, error);
}

static enum status guest_plan_reserve(struct engine *e, struct plan_run *run, bool *lacks,
                                      struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->plan_reserve(own, run, lacks, error);
}

static enum status guest_plan_finish(struct engine *e, struct error *error)
{
    struct engine *own = self(e)->own;
    return own->ops->plan_finish(own, error);
}

static void guest_release(struct engine *e)
{
    struct engine *own = self(e)->own;
    own->ops->release(own);
}

static void guest_destroy(struct engine *e)
{
    struct guest *g = self(e);
    if (g->own)
        g->own->ops->destroy(g->own);
    if (g->place.listener >= 0)
        close(g->place.listener);
    if (g->folder >= 0)
        close(g->folder);
    free(g);
}

// ---- the guest's function ----

// The outcome of a rank's function, which all ranks exchange.
enum outcome { OUTCOME_RETURNED, OUTCOME_WITH_LSE, OUTCOME_FAILED };

// Exchanges outcomes, of one byte, with all other ranks. With `hurried`, sets *late and returns
// when a rank has not answered within STEP_GRACE_NS.
static enum status outcomes_swap(const struct cpattn_guest_job *job, bool hurried, const char *mine,
                                 char theirs[WORLD_SIZE_MAX], bool *late, struct error *error)
{
    struct transport *t = job->control;
    struct message messages[WORLD_SIZE_MAX];
    struct progress_view view = progress_load(job->progress);
    uint64_t end_ns = clock_now_ns() + STEP_GRACE_NS;
    int count = 0, done = 0;
    theirs[t->rank] = *mine;
    for (int peer = 0; peer < t->world_size; peer++)
        if (peer != t->rank)
            messages[count++] = (struct message){peer, mine, 1, &theirs[peer], 1};
    enum status status =
        t->ops->start(t, job->number << 24 | REPORT_BACKWARD << 16, messages, count, error);
    while (status == STATUS_OK && !done) {
        view.waiting_for = t->ops->waiting_for(t);
        progress_store(job->progress, view);
        *late = hurried && clock_now_ns() >= end_ns;
        if (*late)
            return STATUS_OK;
        status = t->ops->progress(t, hurried ? STEP_LOOK_MS : -1, &done, error);
    }
    return status;
}

static void refusal_set(const struct cpattn_guest_job *job, bool failed)
{
    struct refusal *refusal = job->refusal;
    refusal->status = (int32_t)(!failed            ? STATUS_ABORTED
                                : job->unsupported ? STATUS_UNIMPLEMENTED
                                                   : STATUS_UNKNOWN);
    snprintf(refusal->text, sizeof(refusal->text), "%s", failed ? job->text : "");
}

// Refuses the job if a function has failed, or if only some ranks deliver LSE.
static void outcomes_judge(struct cpattn_guest_job *job, const char outcomes[WORLD_SIZE_MAX])
{
    int size = job->control->world_size;
    bool own = outcomes[job->control->rank] == OUTCOME_FAILED, any = false;
    for (int rank = 0; rank < size; rank++) {
        any = any || outcomes[rank] == OUTCOME_FAILED;
        job->with_lse += outcomes[rank] == OUTCOME_WITH_LSE;
    }
    if (any) {
        refusal_set(job, own);
        return;
    }
    if (job->with_lse == 0 || job->with_lse == size)
        return;
    if (!job->has_lse)
        snprintf(job->text, sizeof(job->text), "delivers no lse, which other ranks do");
    refusal_set(job, !job->has_lse);
}

static enum status outcome_settle(struct cpattn_guest_job *job, bool failed, struct error *error)
{
    char outcomes[WORLD_SIZE_MAX];
    char mine = (char)(failed         ? OUTCOME_FAILED
                       : job->has_lse ? OUTCOME_WITH_LSE
                                      : OUTCOME_RETURNED);
    bool late = false;
    enum status status = outcomes_swap(job, failed, &mine, outcomes, &late, error);
    if (status != STATUS_OK)
        return status;
    if (late)
        return error_set(error, STATUS_UNKNOWN, "%.400s; rank %d was still in its function then",
                         job->text, job->control->ops->waiting_for(job->control));
    outcomes_judge(job, outcomes);
    return STATUS_OK;
}

static void times_add(const struct cpattn_guest_job *job)
{
    struct timings *timings = job->timings;
    uint64_t end_ns = clock_now_ns();
    timings->forward_ns += (job->backward_ns ? job->backward_ns : end_ns) - job->start_ns;
    timings->backward_ns += job->backward_ns ? end_ns - job->backward_ns : 0;
}

// Calls the function once and waits for its work on the device.
static enum status function_call(struct engine *e, struct guest_function function,
                                 struct cpattn_guest_job *job, bool *failed, struct error *error)
{
    struct guest *g = self(e);
    job->backward_ns = 0;
    guest_phase(job, REPORT_FORWARD);
    job->start_ns = clock_now_ns();
    *failed = function.run(job, function.context) != 0;
    // A child that the function has forked must not continue as a rank.
    if (getpid() != g->pid)
        _exit(EXIT_SUCCESS);
    if (g->folder >= 0 && fchdir(g->folder) != 0)
        return error_set(error, STATUS_INTERNAL, "cannot go back to the working directory: %s",
                         strerror(errno));
    if (*failed && !job->text[0])
        snprintf(job->text, sizeof(job->text), "the guest's function failed and did not say why");
    enum status status = guest_wait(e, job, *failed, error);
    times_add(job);
    return status;
}

// Refuses the job. All ranks do so, because they run the same program: no exchange is needed.
static enum status function_missing(const struct guest_function *function, struct refusal *refusal)
{
    refusal->status = STATUS_UNIMPLEMENTED;
    snprintf(refusal->text, sizeof(refusal->text), "the guest has no function for jobs '%s'",
             function->kind);
    return STATUS_OK;
}

// Calls the function `iterations` times, then exchanges the outcome with the other ranks. Times are
// averages over the calls.
static enum status function_run(struct engine *e, const char *kind, int iterations,
                                struct cpattn_guest_job *job, struct error *error)
{
    struct guest_function function = guest_function_of(kind);
    bool failed = false;
    enum status status = STATUS_OK;
    if (!function.run)
        return function_missing(&function, job->refusal);
    for (int i = 0; i < iterations && status == STATUS_OK && !failed; i++)
        status = function_call(e, function, job, &failed, error);
    job->timings->forward_ns /= (uint64_t)iterations;
    job->timings->backward_ns /= (uint64_t)iterations;
    return status == STATUS_OK ? outcome_settle(job, failed, error) : status;
}

static enum status guest_execute(struct engine *e, struct job *j, struct error *error)
{
    struct guest *g = self(e);
    struct cpattn_guest_job job = {.j = j,
                                   .engine = g->own,
                                   .limit_ns = e->limit_ns,
                                   .place = &g->place,
                                   .number = j->number,
                                   .control = j->control,
                                   .progress = j->progress,
                                   .refusal = &j->report->refusal,
                                   .timings = &j->report->timings};
    enum status status = function_run(e, job_kind_attention.name, 1, &job, error);
    j->lse_absent = job.with_lse == 0;
    return status;
}

static enum status guest_plan_execute(struct engine *e, const struct plan_run *run,
                                      struct error *error)
{
    struct guest *g = self(e);
    struct cpattn_guest_job job = {.run = run,
                                   .engine = g->own,
                                   .limit_ns = e->limit_ns,
                                   .place = &g->place,
                                   .number = run->job,
                                   .control = run->control,
                                   .progress = run->progress,
                                   .refusal = run->refusal,
                                   .timings = run->timings};
    // The inputs must be complete when the function is called.
    enum status status = g->own->ops->wait ? g->own->ops->wait(g->own, false, error) : STATUS_OK;
    return status == STATUS_OK ? function_run(e, run->kind->name, run->iterations, &job, error)
                               : status;
}

// ---- life ----

static const struct engine_ops guest_ops = {
    .name = "guest",
    .brings_execution = true,
    .reserve = guest_reserve,
    .admit = guest_admit,
    .prepare = guest_prepare,
    .execute = guest_execute,
    .verify = guest_verify,
    .plan_execute = guest_plan_execute,
    .plan_finish = guest_plan_finish,
    .release = guest_release,
    .destroy = guest_destroy,
};

// Sets the optional operations that the own engine has.
static void ops_set(struct guest *g)
{
    const struct engine_ops *own = g->own->ops;
    g->ops.read = own->read ? guest_read : NULL;
    g->ops.wait = own->wait ? guest_device_wait : NULL;
    g->ops.queue = own->queue ? guest_queue : NULL;
    g->ops.plan_reserve = own->plan_reserve ? guest_plan_reserve : NULL;
    g->ops.collective_judge = own->collective_judge;
    g->ops.linear_tools = own->linear_tools;
}

// Listens on a free port of 127.0.0.1. The port is reserved while the socket is open.
static enum status listener_open(struct cpattn_guest_place *place, struct error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    place->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (place->listener < 0 ||
        bind(place->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(place->listener, WORLD_SIZE_MAX) != 0 ||
        getsockname(place->listener, (struct sockaddr *)&address, &size) != 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "no port for the process group of the ranks: %s", strerror(errno));
    place->port = ntohs(address.sin_port);
    return STATUS_OK;
}

// Rank 0 opens the port and sends its number to the other ranks.
static enum status port_agree(struct guest *g, const struct engine_setup *setup,
                              struct error *error)
{
    struct transport_swap over = {setup->control, setup->progress, 1};
    struct swap swap = transport_swap(&over);
    struct message messages[WORLD_SIZE_MAX];
    struct cpattn_guest_place *place = &g->place;
    int count = 0;
    enum status status = place->rank == 0 ? listener_open(place, error) : STATUS_OK;
    for (int peer = 1; peer < place->world_size && place->rank == 0; peer++)
        messages[count++] = (struct message){peer, &place->port, sizeof(place->port), NULL, 0};
    if (place->rank > 0)
        messages[count++] = (struct message){0, NULL, 0, &place->port, sizeof(place->port)};
    if (status == STATUS_OK && count > 0)
        status = swap.run(swap.context, messages, count, error);
    return status;
}

static enum status program_start(struct guest *g, struct error *error)
{
    char text[ERROR_TEXT_MAX] = "";
    if (!guest_program->start ||
        guest_program->start(&g->place, text, sizeof(text), guest_program->context) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_UNKNOWN, "%s",
                     text[0] ? text : "the guest cannot start and does not say why");
}

enum status guest_engine_create(const struct engine_kind *base, const struct engine_setup *setup,
                                struct engine **engine, struct error *error)
{
    struct guest *g = calloc(1, sizeof(*g));
    if (!g)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a guest");
    g->ops = guest_ops;
    g->base.ops = &g->ops;
    g->pid = getpid();
    g->folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    g->place = (struct cpattn_guest_place){.rank = setup->control->rank,
                                           .world_size = setup->control->world_size,
                                           .device = -1,
                                           .listener = -1};
    enum status status = base->create(setup, &g->own, error);
    g->place.device = status == STATUS_OK ? guest_device() : -1;
    if (status == STATUS_OK)
        ops_set(g);
    if (status == STATUS_OK)
        status = port_agree(g, setup, error);
    if (status == STATUS_OK)
        status = program_start(g, error);
    if (status != STATUS_OK) {
        guest_destroy(&g->base);
        return status;
    }
    *engine = &g->base;
    return STATUS_OK;
}

static enum status guest_cpu_create(const struct engine_setup *setup, struct engine **engine,
                                    struct error *error)
{
    return guest_engine_create(&engine_cpu, setup, engine, error);
}

const struct engine_kind engine_guest_cpu = {
    .program = "guest", .arguments = "", .create = guest_cpu_create};
