// SPDX-License-Identifier: Apache-2.0
// The clients of the soak: their requests, and the checks of the answers. An `ask` is a request in
// flight; a `known` is a stored answer.
#include "bench/soak_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/soak_state.h"
#include "common/token.h"
#include "tests/support/generate.h"
#include "tests/support/raw_client.h"

#define CLIENTS    12
#define REMOTE     4  // number of these that use TCP, if the daemon listens on TCP
#define ASKS       16 // maximum requests in flight of a client
#define FLOODERS   6
#define FLOOD_ASKS 96 // maximum requests in flight of a flooder
#define WORLD_MAX  3
#define LENGTH_MAX 64
#define KNOWN      16384 // stored answers, with which repetitions are compared
#define TIMEOUT_US INT64_C(2500000)
// An answer that is missing this long after the deadline of its request counts as lost.
#define LATE_US    INT64_C(20000000)
// For this long after a stall of the soak the daemon may drop clients that did not read.
#define STALLED_US INT64_C(1000000)

struct ask {
    enum soak_kind kind; // NONE: free
    uint32_t number;
    int64_t sent_us, deadline_us;
    uint64_t seed; // of the case
    struct request_id id;
};

struct client {
    struct raw_client raw;
    struct ask asks[FLOOD_ASKS];
    uint32_t last_number;
    int limit; // maximum requests in flight
    bool flooding, remote;
};

// The answer to a request, to compare with a repetition.
struct known {
    struct request_id id;
    uint64_t seed, digest;
    enum status status;
    bool remote;
    uint64_t at; // number of answers to cases up to this one; 0: free
};

static struct client clients[CLIENTS + FLOODERS];
static struct known knowns[KNOWN];

// ---- requests ----------------------------------------------------------------------------------

static struct ask *ask_free(struct client *c)
{
    for (int i = 0; i < c->limit; i++)
        if (c->asks[i].kind == KIND_NONE)
            return &c->asks[i];
    return NULL;
}

static void id_draw(struct request_id *id)
{
    uint64_t halves[2] = {generate_next(&soak.random), generate_next(&soak.random)};
    memcpy(id->bytes, halves, sizeof(id->bytes));
}

static void ask_send(struct client *c, struct ask *a, enum soak_kind kind,
                     struct wire_request *request)
{
    request->version = WIRE_VERSION;
    if (c->remote)
        token_set(&request->token, SOAK_TOKEN, sizeof(SOAK_TOKEN) - 1);
    a->kind = kind;
    a->number = ++c->last_number & INT32_MAX;
    a->id = request->id;
    a->sent_us = soak_now_us();
    a->deadline_us = a->sent_us + (int64_t)(request->timeout_ns / 1000);
    soak.counts.sent[kind]++;
    soak.counts.over_network += c->remote;
    raw_send(&c->raw, a->number, request);
}

static void ask_run(struct client *c, const struct request_id *id, uint64_t seed)
{
    static struct wire_request request;
    struct ask *a = ask_free(c);
    if (!a)
        return;
    memset(&request, 0, sizeof(request));
    request.id = *id;
    request.method = METHOD_RUN;
    request.timeout_ns = (uint64_t)TIMEOUT_US * 1000;
    if (c->flooding)
        request.timeout_ns *= 4;
    generate_case(seed, WORLD_MAX, LENGTH_MAX, &request.run);
    a->seed = seed;
    ask_send(c, a, KIND_RUN, &request);
}

static void ask_run_new(struct client *c)
{
    struct request_id id;
    id_draw(&id);
    ask_run(c, &id, generate_next(&soak.random));
}

static void ask_other(struct client *c, enum soak_kind kind, const struct request_id *target)
{
    static struct wire_request request;
    struct ask *a = ask_free(c);
    if (!a)
        return;
    memset(&request, 0, sizeof(request));
    id_draw(&request.id);
    request.method = kind == KIND_STATUS ? METHOD_STATUS : METHOD_CANCEL;
    if (target)
        request.cancel = *target;
    ask_send(c, a, kind, &request);
}

// True if the daemon must still store the answer. The daemon evicts it after ANSWERED_IDS_MAX more
// answers. The count here lacks answers to clients that have died, so half of that is the limit.
static bool known_holds(const struct known *known)
{
    return known->at > 0 && soak.counts.answered[KIND_RUN] < known->at + ANSWERED_IDS_MAX / 2;
}

// Repeats a request that is in flight or answered. The repetition uses the same kind of connection,
// and so comes from the same user.
static void ask_again(struct client *c)
{
    const struct client *other = &clients[generate_below(&soak.random, CLIENTS)];
    const struct ask *open = &other->asks[generate_below(&soak.random, ASKS)];
    if (open->kind == KIND_RUN && other->remote == c->remote && soak_chance(500)) {
        soak.counts.again++;
        ask_run(c, &open->id, open->seed);
        return;
    }
    for (int tries = 0; tries < 64; tries++) {
        const struct known *known = &knowns[generate_below(&soak.random, KNOWN)];
        if (!known_holds(known) || known->remote != c->remote)
            continue;
        soak.counts.again++;
        ask_run(c, &known->id, known->seed);
        return;
    }
}

static void client_act(struct client *c)
{
    if (!soak_chance(60))
        return;
    const struct ask *a = &c->asks[generate_below(&soak.random, ASKS)];
    if (soak_chance(60) && a->kind == KIND_RUN)
        ask_other(c, KIND_CANCEL, &a->id);
    else if (soak_chance(80))
        ask_again(c);
    else if (soak_chance(250))
        ask_other(c, KIND_STATUS, NULL);
    else
        ask_run_new(c);
}

void clients_act(void)
{
    for (int i = 0; i < CLIENTS; i++)
        client_act(&clients[i]);
}

// ---- answers -----------------------------------------------------------------------------------

// True for refusals: a repetition of the request may get another answer.
static bool status_is_momentary(enum status status)
{
    return status == STATUS_RESOURCE_EXHAUSTED || status == STATUS_UNAVAILABLE ||
           status == STATUS_ALREADY_EXISTS || status == STATUS_FAILED_PRECONDITION;
}

static bool status_is_expected(const struct ask *a, enum status status)
{
    if (a->kind != KIND_RUN)
        return status == STATUS_OK || (a->kind == KIND_CANCEL && status == STATUS_NOT_FOUND);
    return status == STATUS_OK || status == STATUS_ABORTED || status == STATUS_CANCELLED ||
           status == STATUS_DEADLINE_EXCEEDED || status == STATUS_INTERNAL ||
           status_is_momentary(status);
}

static void answer_time(const struct ask *a, enum status status)
{
    int64_t now_us = soak_now_us(), took_us = now_us - a->sent_us;
    if (a->kind == KIND_STATUS)
        spread_add(&soak.times[TIME_STATUS], took_us);
    else if (a->kind != KIND_RUN)
        return;
    else if (status == STATUS_OK)
        spread_add(&soak.times[TIME_VERDICT], took_us);
    else if (status == STATUS_ABORTED || status == STATUS_INTERNAL)
        spread_add(&soak.times[TIME_FAULT], took_us);
    else if (status == STATUS_RESOURCE_EXHAUSTED)
        spread_add(&soak.times[TIME_BUSY], took_us);
    // A case that is refused because of its cost gets this status before its deadline.
    else if (status == STATUS_DEADLINE_EXCEEDED && now_us >= a->deadline_us)
        spread_add(&soak.times[TIME_DEADLINE], now_us - a->deadline_us);
}

static void run_answered(const struct client *c, const struct ask *a,
                         const struct wire_reply *reply)
{
    uint16_t place;
    memcpy(&place, a->id.bytes, sizeof(place));
    struct known *known = &knowns[place % KNOWN];
    bool passed = reply->status == STATUS_OK && reply->result.verdict == VERDICT_PASS;
    soak.counts.passed += passed;
    if (reply->status == STATUS_OK && !passed) {
        soak.counts.failed++;
        problem("a verdict that is no pass: case %llu", (unsigned long long)a->seed);
    }
    if (status_is_momentary(reply->status))
        return;
    if (known_holds(known) && memcmp(&known->id, &a->id, sizeof(a->id)) == 0) {
        bool same = known->status == reply->status && known->digest == reply->result.digest;
        soak.counts.again_same += same;
        if (!same) {
            soak.counts.differing++;
            problem("answered %s first, then %s: %s", status_name(known->status),
                    status_name(reply->status), reply->message);
        }
        return;
    }
    *known = (struct known){a->id,         a->seed,   reply->result.digest,
                            reply->status, c->remote, soak.counts.answered[KIND_RUN]};
}

static void answer_take(struct client *c, uint32_t number, const struct wire_reply *reply)
{
    struct ask *a = NULL;
    for (int i = 0; i < c->limit && !a; i++)
        if (c->asks[i].kind != KIND_NONE && c->asks[i].number == number)
            a = &c->asks[i];
    if (!a) {
        soak.counts.twice++;
        problem("an answer to request %u, which waits for none: %s", number, reply->message);
        return;
    }
    soak.counts.answered[a->kind]++;
    soak.counts.by_status[reply->status]++;
    answer_time(a, reply->status);
    bool addressed = memcmp(&reply->id, &a->id, sizeof(a->id)) == 0;
    if (!addressed || !status_is_expected(a, reply->status)) {
        soak.counts.wrong++;
        problem("%s: %s", status_name(reply->status), reply->message);
    }
    if (a->kind == KIND_RUN)
        run_answered(c, a, reply);
    a->kind = KIND_NONE;
}

static void client_close(struct client *c)
{
    for (int i = 0; i < c->limit; i++) {
        soak.counts.abandoned += c->asks[i].kind != KIND_NONE;
        c->asks[i].kind = KIND_NONE;
    }
    raw_close(&c->raw);
}

static int client_overdue(struct client *c, int64_t now_us)
{
    int open = 0;
    for (int i = 0; i < c->limit; i++) {
        struct ask *a = &c->asks[i];
        open += a->kind != KIND_NONE;
        if (a->kind == KIND_NONE || now_us < a->deadline_us + LATE_US)
            continue;
        soak.counts.lost++;
        problem("no answer to a request of kind %d", (int)a->kind);
        a->kind = KIND_NONE;
    }
    return open;
}

static int client_serve(struct client *c, int64_t now_us)
{
    struct wire_reply reply;
    uint32_t number;
    if (c->raw.fd < 0)
        return 0;
    raw_flush(&c->raw);
    for (enum raw_input input; (input = raw_next(&c->raw, &number, &reply)) != RAW_NOTHING;) {
        if (input == RAW_GONE) {
            if (soak.stalled_us > 0 && now_us - soak.stalled_us < STALLED_US) {
                soak.counts.dropped_late++;
            } else {
                soak.counts.dropped++;
                problem("the daemon dropped a client that kept the rules");
            }
            client_close(c);
            return 0;
        }
        answer_take(c, number, &reply);
        wire_reply_fini(&reply);
    }
    return client_overdue(c, now_us);
}

int clients_serve(int64_t now_us)
{
    int open = 0;
    for (int i = 0; i < CLIENTS + FLOODERS; i++)
        open += client_serve(&clients[i], now_us);
    return open;
}

void clients_wait(int timeout_ms)
{
    struct pollfd fds[CLIENTS + FLOODERS];
    nfds_t count = 0;
    for (int i = 0; i < CLIENTS + FLOODERS; i++)
        if (clients[i].raw.fd >= 0)
            fds[count++] = (struct pollfd){.fd = clients[i].raw.fd, .events = POLLIN};
    poll(fds, count, timeout_ms);
}

// ---- actions of a client -----------------------------------------------------------------------

static void client_connect(struct client *c)
{
    if (c->raw.fd >= 0)
        return;
    bool open = c->remote ? raw_open_tcp(&c->raw, soak.process.port)
                          : raw_open(&c->raw, soak.process.socket);
    if (!open)
        problem("cannot connect: %s", strerror(errno));
}

void clients_begin(void)
{
    for (int i = 0; i < CLIENTS + FLOODERS; i++) {
        struct client *c = &clients[i];
        c->flooding = i >= CLIENTS;
        c->remote = soak.process.port > 0 && (i < REMOTE || i == CLIENTS);
        c->limit = c->flooding ? FLOOD_ASKS : ASKS;
        c->raw.fd = -1;
        if (!c->flooding)
            client_connect(c);
    }
}

void clients_close(void)
{
    for (int i = 0; i < CLIENTS + FLOODERS; i++)
        client_close(&clients[i]);
}

void client_die(void)
{
    struct client *c = &clients[generate_below(&soak.random, CLIENTS)];
    soak.counts.deaths++;
    if (soak_chance(500) && c->raw.fd >= 0) {
        // The beginning of a longer frame. The first byte is not part of the frames of TCP.
        static const char half[] = "\1\0\0\0\0\0\0\2\0\x80\0\0\1 and no more";
        ssize_t ignored = send(c->raw.fd, half + c->remote, sizeof(half) - 1 - c->remote,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)ignored;
        soak.counts.halves++;
    }
    client_close(c);
    client_connect(c);
}

void clients_flood(void)
{
    soak.counts.floods++;
    for (int i = CLIENTS; i < CLIENTS + FLOODERS; i++) {
        struct client *c = &clients[i];
        if (soak_chance(200))
            client_close(c);
        client_connect(c);
        for (int k = 0; k < FLOOD_ASKS && c->raw.fd >= 0; k++)
            ask_run_new(c);
    }
}

// Submits a case over TCP with a wrong token or none. The answer must be UNAUTHENTICATED.
static void stranger(void)
{
    static struct wire_request request;
    struct raw_client c;
    struct wire_reply reply;
    uint32_t number;
    if (!raw_open_tcp(&c, soak.process.port))
        return;
    memset(&request, 0, sizeof(request));
    id_draw(&request.id);
    request.version = WIRE_VERSION;
    request.method = METHOD_RUN;
    generate_case(generate_next(&soak.random), WORLD_MAX, LENGTH_MAX, &request.run);
    if (soak_chance(500))
        token_set(&request.token, SOAK_TOKEN "x", sizeof(SOAK_TOKEN));
    soak.counts.strangers++;
    raw_send(&c, 1, &request);
    if (raw_wait(&c, 5000, &number, &reply) != RAW_REPLY) {
        problem("a client without the token is not answered");
    } else {
        if (reply.status != STATUS_UNAUTHENTICATED)
            problem("a client without the token: %s", status_name(reply.status));
        wire_reply_fini(&reply);
    }
    raw_close(&c);
}

void client_hostile(void)
{
    static const char *const lines[] = {
        "GET / HTTP/1.1\r\n\r\n", "\0SP\0\0\x31\0\0", "\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0",
        "\0SP\0\0\x30\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff\x80\0\0\1",
        "\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0\x8\x80\0\0\1\xff\xff\xff\xff"};
    static const size_t sizes[] = {18, 8, 16, 21, 25};
    struct raw_client c;
    bool remote = soak.process.port > 0 && soak_chance(500);
    if (remote && soak_chance(500)) {
        stranger();
        return;
    }
    if (!(remote ? raw_open_tcp(&c, soak.process.port) : raw_open(&c, soak.process.socket)))
        return;
    soak.counts.hostile++;
    c.out_bytes = 0; // drops the greeting; the invalid bytes take its place
    int64_t which = generate_below(&soak.random, (int64_t)(sizeof(sizes) / sizeof(sizes[0])));
    ssize_t ignored = send(c.fd, lines[which], sizes[which], MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
    raw_close(&c);
}
