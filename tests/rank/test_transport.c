// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/limits.h"
#include "transport/transport.h"

// Every rank is a thread with its own transport.
struct mesh {
    int world_size;
    struct transport *ranks[WORLD_SIZE_MAX];
};

static void mesh_init(struct mesh *m, int world_size)
{
    static int fds[WORLD_SIZE_MAX][WORLD_SIZE_MAX];
    struct error error;
    memset(fds, 0xff, sizeof(fds));
    for (int a = 0; a < world_size; a++)
        for (int b = 0; b < a; b++) {
            int pair[2];
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
    m->world_size = world_size;
    for (int rank = 0; rank < world_size; rank++)
        ck_assert_int_eq(
            transport_socket_create(rank, world_size, fds[rank], &m->ranks[rank], &error),
            STATUS_OK);
}

static void rank_close(struct mesh *m, int rank)
{
    if (m->ranks[rank])
        m->ranks[rank]->ops->destroy(m->ranks[rank]);
    m->ranks[rank] = NULL;
}

static void mesh_fini(struct mesh *m)
{
    for (int rank = 0; rank < m->world_size; rank++)
        rank_close(m, rank);
}

// Runs one exchange to its end.
static enum status exchange(struct transport *t, uint64_t tag, const struct message *messages,
                            int count, struct error *error)
{
    int done = 0;
    enum status status = t->ops->start(t, tag, messages, count, error);
    while (status == STATUS_OK && !done)
        status = t->ops->progress(t, -1, &done, error);
    return status;
}

static void pattern_fill(unsigned char *data, size_t bytes, uint64_t key)
{
    uint64_t x = key * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(x >> 56);
    }
}

static int pattern_holds(const unsigned char *data, size_t bytes, uint64_t key)
{
    unsigned char *expected = malloc(bytes + 1);
    pattern_fill(expected, bytes, key);
    int holds = memcmp(data, expected, bytes) == 0;
    free(expected);
    return holds;
}

// ---- schedules drawn from a seed ----

#define SCHEDULE_TRANSFERS 3

struct schedule {
    struct mesh *mesh;
    uint64_t seed;
    int exchanges;
    size_t bytes_max;
};

struct schedule_rank {
    const struct schedule *schedule;
    int rank;
    int faults;
    struct error error;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t message_key(const struct schedule *s, int exchange_number, int from, int to, int k)
{
    return mix(s->seed ^
               mix((uint64_t)exchange_number << 32 | (uint64_t)(from << 16 | to << 8 | k)));
}

// A third of the messages is empty. The sizes of the others are spread over all magnitudes.
static size_t message_bytes(const struct schedule *s, uint64_t key)
{
    if (key % 3 == 0)
        return 0;
    return (size_t)(mix(key) % ((s->bytes_max >> (key >> 8) % 20) + 1));
}

static int schedule_exchange(struct schedule_rank *r, int number)
{
    const struct schedule *s = r->schedule;
    struct message messages[SCHEDULE_TRANSFERS * WORLD_SIZE_MAX];
    int count = 0, faults = 0, world_size = s->mesh->world_size;
    for (int k = 0; k < SCHEDULE_TRANSFERS; k++)
        for (int i = 0; i < world_size; i++) {
            int peer = (i + r->rank) % world_size;
            uint64_t out = message_key(s, number, r->rank, peer, k);
            uint64_t in = message_key(s, number, peer, r->rank, k);
            struct message *m = &messages[count++];
            *m = (struct message){.peer = peer};
            m->send_bytes = message_bytes(s, out);
            m->receive_bytes = message_bytes(s, in);
            unsigned char *send = malloc(m->send_bytes + 1);
            pattern_fill(send, m->send_bytes, out);
            m->send = send;
            m->receive = calloc(1, m->receive_bytes + 1);
        }
    struct transport *t = s->mesh->ranks[r->rank];
    faults += exchange(t, (uint64_t)number, messages, count, &r->error) != STATUS_OK;
    for (int i = 0; i < count; i++) {
        uint64_t in = message_key(s, number, messages[i].peer, r->rank, i / world_size);
        faults += !pattern_holds(messages[i].receive, messages[i].receive_bytes, in);
        free((void *)(uintptr_t)messages[i].send);
        free(messages[i].receive);
    }
    return faults;
}

static void *schedule_main(void *argument)
{
    struct schedule_rank *r = argument;
    for (int i = 0; i < r->schedule->exchanges && r->faults == 0; i++)
        r->faults += schedule_exchange(r, i);
    return NULL;
}

static void schedule_run(int world_size, uint64_t seed, int exchanges, size_t bytes_max)
{
    struct mesh mesh;
    pthread_t threads[WORLD_SIZE_MAX];
    struct schedule_rank ranks[WORLD_SIZE_MAX];
    mesh_init(&mesh, world_size);
    struct schedule s = {&mesh, seed, exchanges, bytes_max};
    for (int i = 0; i < world_size; i++) {
        ranks[i] = (struct schedule_rank){.schedule = &s, .rank = i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, schedule_main, &ranks[i]), 0);
    }
    for (int i = 0; i < world_size; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_msg(ranks[i].faults == 0, "seed %llu, rank %d of %d: %s",
                      (unsigned long long)seed, i, world_size, ranks[i].error.text);
    }
    mesh_fini(&mesh);
}

START_TEST(drawn_schedules_deliver_every_byte)
{
    for (int world_size = 1; world_size <= 6; world_size++)
        for (uint64_t seed = 0; seed < 4; seed++)
            schedule_run(world_size, seed, 20, 100000);
}
END_TEST

// Both sides send far more than the kernel holds before either receives.
START_TEST(large_messages_pass_each_other)
{
    schedule_run(2, 7, 4, 40 << 20);
    schedule_run(4, 8, 2, 8 << 20);
}
END_TEST

START_TEST(a_world_of_the_largest_size)
{
    schedule_run(WORLD_SIZE_MAX, 1, 2, 600);
}
END_TEST

// ---- one thread, two ranks ----

START_TEST(progress_does_not_wait_unless_asked)
{
    struct mesh m;
    struct error error;
    int done = 1;
    char in[4] = "", back[4] = "";
    mesh_init(&m, 2);
    struct transport *a = m.ranks[0], *b = m.ranks[1];
    struct message to_b = {1, "abc", 4, back, 4}, to_a = {0, "xyz", 4, in, 4};

    ck_assert_int_eq(a->ops->waiting_for(a), -1);
    ck_assert_int_eq(a->ops->start(a, 1, &to_b, 1, &error), STATUS_OK);
    ck_assert_int_eq(a->ops->progress(a, 0, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 0);
    ck_assert_int_eq(a->ops->progress(a, 5, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 0);
    ck_assert_int_eq(a->ops->waiting_for(a), 1);
    ck_assert_int_eq(a->ops->start(a, 2, &to_b, 1, &error), STATUS_FAILED_PRECONDITION);

    ck_assert_int_eq(exchange(b, 1, &to_a, 1, &error), STATUS_OK);
    ck_assert_str_eq(in, "abc");
    ck_assert_int_eq(a->ops->progress(a, 0, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 1);
    ck_assert_str_eq(back, "xyz");
    ck_assert_int_eq(a->ops->waiting_for(a), -1);
    ck_assert_int_eq(a->ops->lost_peer(a), -1);
    mesh_fini(&m);
}
END_TEST

// Rank 1 is on this host. Rank 2 is connected by TCP.
START_TEST(peers_of_other_hosts_are_told_by_their_sockets)
{
    int pair[2], fds[3];
    struct transport *t;
    struct error error;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    ck_assert_int_eq(connect(peer, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fds[0] = -1;
    fds[1] = pair[0];
    fds[2] = accept(listener, NULL, NULL);
    ck_assert_int_eq(transport_socket_create(0, 3, fds, &t, &error), STATUS_OK);
    ck_assert_uint_eq(t->far, 1 << 2);
    t->ops->destroy(t);
    close(pair[1]);
    close(peer);
    close(listener);
}
END_TEST

// A peer may start its next exchange while this rank waits for another one.
START_TEST(a_peer_may_run_ahead)
{
    struct mesh m;
    struct error error;
    int done = 0;
    char first[8] = "", second[8] = "", late[8] = "";
    mesh_init(&m, 3);
    struct transport *a = m.ranks[0], *b = m.ranks[1], *c = m.ranks[2];
    struct message from_both[2] = {{1, NULL, 0, first, 6}, {2, NULL, 0, late, 5}};
    struct message from_b = {1, NULL, 0, second, 7};

    ck_assert_int_eq(exchange(b, 1, &(struct message){0, "first", 6, NULL, 0}, 1, &error), 0);
    ck_assert_int_eq(exchange(b, 2, &(struct message){0, "second", 7, NULL, 0}, 1, &error), 0);
    ck_assert_int_eq(a->ops->start(a, 1, from_both, 2, &error), STATUS_OK);
    ck_assert_int_eq(a->ops->progress(a, 0, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 0);
    ck_assert_int_eq(a->ops->waiting_for(a), 2);
    ck_assert_int_eq(exchange(c, 1, &(struct message){0, "late", 5, NULL, 0}, 1, &error), 0);
    ck_assert_int_eq(a->ops->progress(a, -1, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 1);
    ck_assert_int_eq(exchange(a, 2, &from_b, 1, &error), STATUS_OK);
    ck_assert_str_eq(first, "first");
    ck_assert_str_eq(second, "second");
    ck_assert_str_eq(late, "late");
    mesh_fini(&m);
}
END_TEST

START_TEST(ranks_out_of_step_are_an_error)
{
    struct mesh m;
    struct error error;
    char in[64];
    mesh_init(&m, 2);
    ck_assert_int_eq(
        exchange(m.ranks[1], 0x51, &(struct message){0, "four", 4, NULL, 0}, 1, &error), STATUS_OK);
    struct message expected = {1, NULL, 0, in, 4};
    ck_assert_int_eq(exchange(m.ranks[0], 0x52, &expected, 1, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "rank 1 sent message 0x51 of 4 bytes where rank 0 expects message "
                                 "0x52 of 4");
    ck_assert_int_eq(m.ranks[0]->ops->lost_peer(m.ranks[0]), -1);
    // A transport that is out of step is unusable.
    ck_assert_int_eq(exchange(m.ranks[0], 0x53, &expected, 1, &error), STATUS_FAILED_PRECONDITION);
    mesh_fini(&m);

    mesh_init(&m, 2);
    ck_assert_int_eq(exchange(m.ranks[1], 7, &(struct message){0, "four", 4, NULL, 0}, 1, &error),
                     STATUS_OK);
    expected.receive_bytes = 50;
    ck_assert_int_eq(exchange(m.ranks[0], 7, &expected, 1, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "rank 1 sent message 0x7 of 4 bytes where rank 0 expects message "
                                 "0x7 of 50");
    mesh_fini(&m);
}
END_TEST

START_TEST(a_lost_peer_is_named)
{
    struct mesh m;
    struct error error;
    char in[64];
    struct message expected = {1, NULL, 0, in, 9}, sent = {1, "lost", 4, NULL, 0};
    mesh_init(&m, 3);
    // A message that it sent before its end still arrives.
    ck_assert_int_eq(
        exchange(m.ranks[1], 1, &(struct message){0, "last word", 9, NULL, 0}, 1, &error),
        STATUS_OK);
    rank_close(&m, 1);
    ck_assert_int_eq(exchange(m.ranks[0], 1, &expected, 1, &error), STATUS_OK);
    ck_assert_mem_eq(in, "last word", 9);
    ck_assert_int_eq(exchange(m.ranks[0], 2, &expected, 1, &error), STATUS_UNAVAILABLE);
    ck_assert_str_eq(error.text, "rank 1 has closed its connection to rank 0");
    ck_assert_int_eq(m.ranks[0]->ops->lost_peer(m.ranks[0]), 1);
    ck_assert_int_eq(exchange(m.ranks[2], 2, &sent, 1, &error), STATUS_UNAVAILABLE);
    ck_assert_int_eq(m.ranks[2]->ops->lost_peer(m.ranks[2]), 1);
    mesh_fini(&m);
}
END_TEST

// Rank 0 waits for rank 2, which is alive and waits for the rank that has ended.
START_TEST(a_lost_bystander_is_named)
{
    struct mesh m;
    struct error error;
    char in[8];
    mesh_init(&m, 3);
    rank_close(&m, 1);
    struct message expected = {2, NULL, 0, in, 8};
    ck_assert_int_eq(exchange(m.ranks[0], 1, &expected, 1, &error), STATUS_UNAVAILABLE);
    ck_assert_int_eq(m.ranks[0]->ops->lost_peer(m.ranks[0]), 1);
    mesh_fini(&m);
}
END_TEST

// A header may arrive in any pieces, here in single bytes.
START_TEST(messages_may_arrive_byte_by_byte)
{
    int pair[2], done = 0;
    struct transport *t;
    struct error error;
    char first[3] = "", second[5] = "";
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(transport_socket_create(0, 2, (int[]){-1, pair[0]}, &t, &error), STATUS_OK);
    struct message messages[2] = {{1, NULL, 0, first, 3}, {1, NULL, 0, second, 5}};
    ck_assert_int_eq(t->ops->start(t, 9, messages, 2, &error), STATUS_OK);
    struct {
        uint64_t tag, bytes;
        char body[3];
    } __attribute__((packed)) one = {9, 3, "hi"};
    struct {
        uint64_t tag, bytes;
        char body[5];
    } __attribute__((packed)) two = {9, 5, "yall"};
    char wire[sizeof(one) + sizeof(two)];
    memcpy(wire, &one, sizeof(one));
    memcpy(wire + sizeof(one), &two, sizeof(two));
    for (size_t i = 0; i < sizeof(wire); i++) {
        ck_assert_int_eq(done, 0);
        ck_assert_int_eq(write(pair[1], wire + i, 1), 1);
        ck_assert_int_eq(t->ops->progress(t, -1, &done, &error), STATUS_OK);
    }
    ck_assert_int_eq(done, 1);
    ck_assert_str_eq(first, "hi");
    ck_assert_str_eq(second, "yall");
    t->ops->destroy(t);
    close(pair[1]);
}
END_TEST

// A wrong header is refused before its body arrives.
START_TEST(a_wrong_header_is_refused_at_once)
{
    int pair[2], done = 0;
    struct transport *t;
    struct error error;
    char in[1000];
    uint64_t header[2] = {4, 3000};
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(transport_socket_create(0, 2, (int[]){-1, pair[0]}, &t, &error), STATUS_OK);
    ck_assert_int_eq(t->ops->start(t, 4, &(struct message){1, NULL, 0, in, 1000}, 1, &error),
                     STATUS_OK);
    ck_assert_int_eq(write(pair[1], header, sizeof(header)), sizeof(header));
    ck_assert_int_eq(t->ops->progress(t, -1, &done, &error), STATUS_INTERNAL);
    t->ops->destroy(t);
    close(pair[1]);
}
END_TEST

START_TEST(local_copies_need_no_peer)
{
    struct mesh m;
    struct error error;
    int done = 0;
    char to[8] = "";
    mesh_init(&m, 1);
    struct transport *t = m.ranks[0];
    struct message copies[2] = {{0, "self", 5, to, 5}, {0, NULL, 0, NULL, 0}};
    ck_assert_int_eq(t->ops->start(t, 1, copies, 2, &error), STATUS_OK);
    ck_assert_int_eq(t->ops->progress(t, -1, &done, &error), STATUS_OK);
    ck_assert_int_eq(done, 1);
    ck_assert_str_eq(to, "self");
    // The two sides may be in different messages.
    struct message halves[3] = {
        {0, NULL, 0, to + 4, 4}, {0, "abc", 4, to, 2}, {0, "x", 2, NULL, 0}};
    ck_assert_int_eq(t->ops->start(t, 2, halves, 3, &error), STATUS_OK);
    ck_assert_str_eq(to, "x");
    ck_assert_str_eq(to + 4, "abc");
    mesh_fini(&m);
}
END_TEST

START_TEST(senseless_messages_are_refused)
{
    struct mesh m;
    struct error error;
    char to[8];
    mesh_init(&m, 2);
    struct transport *t = m.ranks[0];
    ck_assert_int_eq(t->ops->start(t, 1, &(struct message){.peer = 2}, 1, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "a message with rank 2 of 2");
    ck_assert_int_eq(t->ops->start(t, 1, &(struct message){.peer = -1}, 1, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(t->ops->start(t, 1, &(struct message){0, "long", 5, to, 4}, 1, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(t->ops->start(t, 1, &(struct message){0, NULL, 0, to, 4}, 1, &error),
                     STATUS_INVALID_ARGUMENT);
    mesh_fini(&m);
    ck_assert_int_eq(transport_socket_create(2, 2, (int[]){-1, -1}, &t, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(transport_socket_create(0, 2, (int[]){-1, 999}, &t, &error),
                     STATUS_INVALID_ARGUMENT);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("transport");
    TCase *schedules = tcase_create("schedules");
    tcase_set_timeout(schedules, 60);
    tcase_add_test(schedules, drawn_schedules_deliver_every_byte);
    tcase_add_test(schedules, large_messages_pass_each_other);
    tcase_add_test(schedules, a_world_of_the_largest_size);
    suite_add_tcase(s, schedules);
    TCase *exchanges = tcase_create("exchanges");
    tcase_add_test(exchanges, progress_does_not_wait_unless_asked);
    tcase_add_test(exchanges, peers_of_other_hosts_are_told_by_their_sockets);
    tcase_add_test(exchanges, a_peer_may_run_ahead);
    tcase_add_test(exchanges, ranks_out_of_step_are_an_error);
    tcase_add_test(exchanges, a_lost_peer_is_named);
    tcase_add_test(exchanges, a_lost_bystander_is_named);
    tcase_add_test(exchanges, messages_may_arrive_byte_by_byte);
    tcase_add_test(exchanges, a_wrong_header_is_refused_at_once);
    tcase_add_test(exchanges, local_copies_need_no_peer);
    tcase_add_test(exchanges, senseless_messages_are_refused);
    suite_add_tcase(s, exchanges);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
