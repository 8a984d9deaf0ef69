// SPDX-License-Identifier: Apache-2.0
// Replaces cpattnd in tests of the client: fake_daemon SOCKET. The label of a case selects the
// behaviour. Prints "ready" when it listens. Ends when its stdin is closed.
#include <errno.h>
#include <inttypes.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/wire_samples.h"

#define WORKERS  300 // maximum number of waiting requests
#define HOLD_S   30  // a held request is answered after this time
#define HELD_MAX WORKERS

static nng_socket server;
static atomic_int runs;        // cases received
static atomic_int connections; // accepted
static atomic_int workers;     // started
static atomic_int idle;        // workers that wait for a request

// ---- requests that wait to be cancelled ---------------------------------------------------------

static pthread_mutex_t hold_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_changed = PTHREAD_COND_INITIALIZER;
static struct {
    bool used, cancelled;
    struct request_id id;
} held[HELD_MAX];

static int held_find(const struct request_id *id)
{
    for (int i = 0; i < HELD_MAX; i++)
        if (held[i].used && memcmp(&held[i].id, id, sizeof *id) == 0)
            return i;
    return -1;
}

static int held_count(void)
{
    int count = 0;
    pthread_mutex_lock(&hold_mutex);
    for (int i = 0; i < HELD_MAX; i++)
        count += held[i].used;
    pthread_mutex_unlock(&hold_mutex);
    return count;
}

static enum status hold(const struct request_id *id)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HOLD_S;
    pthread_mutex_lock(&hold_mutex);
    int place = 0;
    while (held[place].used)
        place++;
    held[place].used = true;
    held[place].cancelled = false;
    held[place].id = *id;
    int result = 0;
    while (!held[place].cancelled && result == 0)
        result = pthread_cond_timedwait(&hold_changed, &hold_mutex, &until);
    held[place].used = false;
    pthread_mutex_unlock(&hold_mutex);
    return result == 0 ? STATUS_CANCELLED : STATUS_DEADLINE_EXCEEDED;
}

static enum status cancel(const struct request_id *id)
{
    pthread_mutex_lock(&hold_mutex);
    int place = held_find(id);
    if (place >= 0)
        held[place].cancelled = true;
    pthread_cond_broadcast(&hold_changed);
    pthread_mutex_unlock(&hold_mutex);
    return place >= 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

// ---- behaviours ---------------------------------------------------------------------------------

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void reply_result(struct wire_reply *reply, const struct cp_case *c)
{
    struct sample s = {c->seed};
    sample_result(&s, c->world_size, &reply->result);
    reply->result.verdict = strcmp(c->model, "fail") == 0 ? VERDICT_FAIL : VERDICT_PASS;
    if (c->verify == VERIFY_OFF)
        reply->result.verdict = VERDICT_UNVERIFIED;
    reply->result.digest = c->seed + (strcmp(c->model, "drift") == 0 ? (uint64_t)runs : 0);
}

static void reply_refusal(struct wire_reply *reply, enum status status, const char *message)
{
    reply->status = status;
    snprintf(reply->message, sizeof reply->message, "%s", message);
}

static void reply_run(struct wire_reply *reply, const struct wire_request *request)
{
    const struct cp_case *c = &request->run;
    struct sample s = {c->seed};
    long ms;
    if (sscanf(c->model, "delay:%ld", &ms) == 1)
        pause_ms(ms);
    if (strcmp(c->model, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(c->model, "die") == 0)
        _exit(0);
    if (strcmp(c->model, "hold") == 0) {
        reply_refusal(reply, hold(&request->id), "cancelled on request");
    } else if (strcmp(c->model, "failure") == 0) {
        reply_refusal(reply, STATUS_ABORTED, "rank 1 was killed by signal 9 in forward, step 1");
        sample_failure(&s, c->world_size, &reply->failure);
    } else if (strcmp(c->model, "refuse") == 0) {
        reply_refusal(reply, STATUS_INVALID_ARGUMENT, "case.heads is wrong");
        memset(&reply->id, 0, sizeof reply->id);
    } else if (strcmp(c->model, "limits") == 0) {
        char text[64];
        snprintf(text, sizeof text, "%" PRIu64 " ns, %" PRIu64 " ns of them at work",
                 request->timeout_ns, request->run_timeout_ns);
        reply_refusal(reply, STATUS_DEADLINE_EXCEEDED, text);
    } else if (strcmp(c->model, "wishes") == 0) {
        char text[64];
        snprintf(text, sizeof text, "patience %" PRIu64 " ns%s", request->patience_ns,
                 request->cancel_on_disconnect ? ", cancel on disconnect" : "");
        reply_refusal(reply, STATUS_DEADLINE_EXCEEDED, text);
    } else if (strcmp(c->model, "other-method") == 0) {
        reply->method = METHOD_DESCRIBE;
    } else if (strcmp(c->model, "other-id") == 0) {
        reply->id.bytes[3] ^= 1;
        reply_result(reply, c);
    } else if (strcmp(c->model, "largest") == 0) {
        sample_result_largest(&reply->result);
    } else {
        reply_result(reply, c);
    }
}

// Three events for each request, until 1000 events are sent. The stream changes with the fourth
// reply; the second reply reports five lost events.
static void reply_watch(struct sample *s, const struct wire_watch *watch,
                        struct wire_events *events)
{
    bool more = watch->after < 1000;
    sample_events(s, more ? 3 : 0, events);
    events->stream = watch->stream == 8 || watch->after > 6 ? 8 : 7;
    events->lost = watch->after == 3 ? 5 : 0;
    events->last = watch->after + (uint64_t)events->count;
    for (int i = 0; i < events->count; i++)
        events->list[i].number = watch->after + (uint64_t)i + 1;
    if (watch->recent == 1024)
        events->count = 0;
}

static void reply_fill(struct wire_reply *reply, const struct wire_request *request)
{
    struct sample s = {1};
    memset(reply, 0, sizeof *reply);
    reply->version = WIRE_VERSION;
    reply->id = request->id;
    reply->method = request->method;
    switch (request->method) {
    case METHOD_RUN:
        reply_run(reply, request);
        break;
    case METHOD_DESCRIBE:
        sample_description(&s, &reply->description);
        reply->description.devices = runs;
        reply->description.queue_max = connections;
        reply->description.gpu_count = 2;
        for (int i = 0; i < 2; i++)
            reply->description.gpus[i] = (struct wire_device){
                .index = 3 * i, .arch = "sm_90", .memory_bytes = 1 << 30, .name = "NVIDIA H200"};
        break;
    case METHOD_STATUS:
        sample_status(&s, 3, &reply->pools);
        reply->pools.running = held_count();
        reply->pools.hosts[1] = (struct wire_host){
            .name = "node1", .devices = 8, .devices_out = 5, .devices_stuck = 2, .lost = true};
        break;
    case METHOD_CANCEL:
        reply->status = cancel(&request->cancel);
        break;
    case METHOD_WATCH:
        reply_watch(&s, &request->watch, &reply->events);
        break;
    case METHOD_ORDER:
        reply->done = 10 * (uint64_t)request->order.kind + (uint64_t)request->order.device +
                      100 * (uint64_t)request->order.host;
        break;
    }
}

static nng_msg *message_of(const void *data, size_t size)
{
    nng_msg *message;
    if (nng_msg_alloc(&message, size) != 0)
        abort();
    if (size > 0 && data)
        memcpy(nng_msg_body(message), data, size);
    return message;
}

// The malformed reply that the label selects, or NULL.
static nng_msg *message_malformed(const char *label)
{
    if (strcmp(label, "garbage") == 0)
        return message_of("\xff\xff\xff", 3);
    if (strcmp(label, "empty") == 0)
        return message_of(NULL, 0);
    if (strcmp(label, "oversized") == 0)
        return message_of(NULL, REPLY_BYTES_MAX + 1);
    if (strcmp(label, "version") == 0)
        return message_of("\x08\x02", 2);
    return NULL;
}

static nng_msg *answer(const struct wire_request *request)
{
    struct wire_reply reply;
    struct error error;
    void *data;
    size_t size;
    nng_msg *malformed =
        request->method == METHOD_RUN ? message_malformed(request->run.model) : NULL;
    if (malformed)
        return malformed;
    reply_fill(&reply, request);
    if (wire_encode_reply(&reply, &data, &size, &error) != STATUS_OK)
        abort();
    wire_reply_fini(&reply);
    nng_msg *message = message_of(data, size);
    free(data);
    return message;
}

// The next request, or NULL when the server ends.
static nng_msg *receive(nng_ctx context, nng_aio *aio)
{
    nng_ctx_recv(context, aio);
    nng_aio_wait(aio);
    return nng_aio_result(aio) == 0 ? nng_aio_get_msg(aio) : NULL;
}

static void reply(nng_ctx context, nng_aio *aio, nng_msg *message)
{
    nng_aio_set_msg(aio, message);
    nng_ctx_send(context, aio);
    nng_aio_wait(aio);
    if (nng_aio_result(aio) != 0)
        nng_msg_free(message);
}

static void worker_start(void);

static void *work(void *arg)
{
    nng_ctx context;
    nng_aio *aio;
    nng_msg *message;
    (void)arg;
    if (nng_ctx_open(&context, server) != 0 || nng_aio_alloc(&aio, NULL, NULL) != 0)
        abort();
    while ((message = receive(context, aio)) != NULL) {
        struct wire_request request;
        struct error error;
        if (atomic_fetch_sub(&idle, 1) == 1)
            worker_start();
        if (wire_decode_request(nng_msg_body(message), nng_msg_len(message), &request, &error) !=
            STATUS_OK) {
            fprintf(stderr, "fake_daemon: %s\n", error.text);
            abort();
        }
        nng_msg_free(message);
        runs += request.method == METHOD_RUN;
        if (request.method != METHOD_RUN || strcmp(request.run.model, "silent") != 0)
            reply(context, aio, answer(&request));
        idle++;
    }
    return NULL;
}

// One worker always waits for the next request, up to WORKERS. Not all start at once: with a
// sanitizer a thread is expensive, and some tests start this program many times.
static void worker_start(void)
{
    pthread_attr_t small;
    pthread_t thread;
    if (atomic_fetch_add(&workers, 1) >= WORKERS)
        return;
    idle++;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    if (pthread_create(&thread, &small, work, NULL) != 0)
        abort();
    pthread_attr_destroy(&small);
}

// Runs before the first request of a connection is read. So the answer to that request counts the
// connection.
static void count_connection(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)pipe;
    (void)event;
    (void)arg;
    connections++;
}

int main(int argc, char **argv)
{
    char url[256], end;
    if (argc != 2)
        return 2;
    snprintf(url, sizeof url, "ipc://%s", argv[1]);
    if (nng_rep0_open(&server) != 0 ||
        nng_pipe_notify(server, NNG_PIPE_EV_ADD_PRE, count_connection, NULL) != 0 ||
        nng_listen(server, url, NULL, 0) != 0)
        return 1;
    worker_start();
    puts("ready");
    fflush(stdout);
    ssize_t got;
    do {
        got = read(STDIN_FILENO, &end, 1);
    } while (got > 0 || (got < 0 && errno == EINTR));
    _exit(0);
}
