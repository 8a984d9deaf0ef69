// SPDX-License-Identifier: Apache-2.0
// Swaps of device messages over the sockets between ranks (rank/cuda/swap_staged.h), with a
// simulated runtime in host memory. Ranks are threads.
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "rank/cuda/swap_staged.h"
#include "tests/support/runner.h"

#define RANKS  3
#define ROUNDS 20

static bool copies_fail;

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(dst, src, count);
    return copies_fail ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

bool queue_note(struct cuda_queue *q, cudaError_t error, const char *what)
{
    q->error = error;
    q->failed = what;
    return error == cudaSuccess;
}

enum status queue_report(struct cuda_queue *q, struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "%s failed", q->failed);
}

// ---- ranks ----

static int fds[RANKS][RANKS];

static void connect_all(void)
{
    for (int a = 0; a < RANKS; a++)
        for (int b = a; b < RANKS; b++) {
            int pair[2] = {-1, -1};
            if (a != b)
                ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
}

// Bytes of the message from one rank to another in a round; some messages are empty.
static size_t bytes_of(int round, int from, int to)
{
    return (size_t)((round * 7 + from * 3 + to) % 4 == 0 ? 0 : 100 * round + 10 * from + to);
}

static bool rounds_run(int rank, struct swap_cuda swap)
{
    static char sent[RANKS][RANKS][ROUNDS * 100 + 100], got[RANKS][RANKS][ROUNDS * 100 + 100];
    bool good = true;
    for (int round = 0; round < ROUNDS; round++) {
        struct message messages[RANKS];
        struct error error;
        int count = 0;
        for (int peer = 0; peer < RANKS; peer++) {
            if (peer == rank)
                continue;
            memset(sent[rank][peer], round + 16 * rank + 64 * peer, sizeof(sent[rank][peer]));
            memset(got[rank][peer], 1, sizeof(got[rank][peer]));
            messages[count++] =
                (struct message){peer, sent[rank][peer], bytes_of(round, rank, peer),
                                 got[rank][peer], bytes_of(round, peer, rank)};
        }
        good = good && swap.start(swap.context, messages, count, &error) == STATUS_OK &&
               swap.join(swap.context, &error) == STATUS_OK;
        for (int peer = 0; peer < RANKS && good; peer++)
            for (size_t i = 0; peer != rank && i < sizeof(got[rank][peer]); i++)
                good = good && got[rank][peer][i] == (char)(i < bytes_of(round, peer, rank)
                                                                ? round + 16 * peer + 64 * rank
                                                                : 1);
    }
    return good;
}

static pthread_barrier_t end;

static void *rank_run(void *number)
{
    static bool good[RANKS];
    int rank = *(int *)number;
    struct transport *transport;
    struct progress progress = {0};
    struct cuda_queue queue = {0};
    struct error error;
    if (transport_socket_create(rank, RANKS, fds[rank], &transport, &error) != STATUS_OK)
        return &good[rank];
    struct swap_staged staged = {&queue, {transport, &progress, 1}};
    good[rank] = rounds_run(rank, swap_staged(&staged));
    pthread_barrier_wait(&end); // no rank ends while others exchange
    transport->ops->destroy(transport);
    return &good[rank];
}

START_TEST(messages_arrive)
{
    pthread_t threads[RANKS];
    int numbers[RANKS];
    connect_all();
    ck_assert_int_eq(pthread_barrier_init(&end, NULL, RANKS), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        numbers[rank] = rank;
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, rank_run, &numbers[rank]), 0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        void *good;
        pthread_join(threads[rank], &good);
        ck_assert(*(bool *)good);
    }
}
END_TEST

START_TEST(errors_of_the_device_are_returned)
{
    struct cuda_queue queue = {0};
    struct error error = {0};
    struct swap_staged staged = {.queue = &queue};
    struct swap_cuda swap = swap_staged(&staged);
    char byte = 7;
    struct message message = {1, &byte, 1, NULL, 0};
    copies_fail = true;
    ck_assert_int_eq(swap.start(swap.context, &message, 1, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "a message failed");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("swap_staged");
    TCase *tcase = tcase_create("swap_staged");
    tcase_add_test(tcase, messages_arrive);
    tcase_add_test(tcase, errors_of_the_device_are_returned);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
