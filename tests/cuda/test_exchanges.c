// SPDX-License-Identifier: Apache-2.0
// Tests the transports of ranks on devices with the simulated runtime of tests/cuda/prompt_cuda.h,
// without a device: which transports are opened, their memory, and exchanges of large messages.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rank/cuda/engine_state.h"
#include "tests/cuda/prompt_cuda.h"
#include "tests/support/runner.h"
#include "transport/peer.h"
#include "transport/peer_exchange.h"

#define WORLD_MAX 3
#define MIB       ((size_t)1 << 20)

struct rank {
    struct transport *control;
    struct cuda cuda;
    struct error error;
    bool lacks; // result of the last announcement: some rank lacks memory
};

static struct rank ranks[WORLD_MAX];
static int world_size;

// ---- stubs for the rest of the engine -----------------------------------------------------------

static char no_executor;

enum status cuda_executor_create(struct attention_backend *backend, struct transport *transport,
                                 cudaStream_t comm, struct progress *words,
                                 struct cuda_executor **executor, struct error *error)
{
    (void)backend;
    (void)transport;
    (void)comm;
    (void)words;
    (void)error;
    *executor = (struct cuda_executor *)(void *)&no_executor;
    return STATUS_OK;
}

enum status cuda_executor_start(struct cuda_executor *x, const struct cuda_execution *e,
                                struct error *error)
{
    (void)x;
    (void)e;
    return error_set(error, STATUS_INTERNAL, "no plan is executed here");
}

void cuda_executor_take(struct cuda_executor *x, const struct cuda_execution *e)
{
    (void)x;
    (void)e;
}

enum status cuda_executor_wait(struct cuda_executor *x, struct error *error)
{
    (void)x;
    (void)error;
    return STATUS_OK;
}

enum status cuda_executor_timings(struct cuda_executor *x, struct timings *timings,
                                  struct op_times *op_times, struct error *error)
{
    (void)x;
    (void)timings;
    (void)op_times;
    (void)error;
    return STATUS_OK;
}

enum status attention_cuda_finish(struct attention_backend *backend, struct error *error)
{
    (void)backend;
    (void)error;
    return STATUS_OK;
}

// ---- worlds -------------------------------------------------------------------------------------

struct call {
    enum status (*what)(struct rank *r);
    int rank;
    enum status status;
};

static void *call_make(void *argument)
{
    struct call *call = argument;
    prompt_enter(call->rank);
    call->status = call->what(&ranks[call->rank]);
    return NULL;
}

// Calls `what` on all ranks at the same time, each in its own thread. All calls must succeed.
static void ranks_do(enum status (*what)(struct rank *r))
{
    pthread_t threads[WORLD_MAX];
    struct call calls[WORLD_MAX];
    for (int rank = 0; rank < world_size; rank++) {
        calls[rank] = (struct call){what, rank, STATUS_INTERNAL};
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, call_make, &calls[rank]), 0);
    }
    for (int rank = 0; rank < world_size; rank++) {
        ck_assert_int_eq(pthread_join(threads[rank], NULL), 0);
        ck_assert_msg(calls[rank].status == STATUS_OK, "rank %d: %s", rank, ranks[rank].error.text);
    }
}

static enum status rank_open(struct rank *r)
{
    const struct engine_setup setup = {.control = r->control};
    device_arena_init(&r->cuda.arena, SIZE_MAX);
    events_init(&r->cuda.times, true);
    return cuda_exchanges_open(&r->cuda, &setup, &r->error);
}

static enum status rank_close(struct rank *r)
{
    struct cuda *cuda = &r->cuda;
    enum status status = cuda->peer ? transport_peer_free(cuda->peer, &r->error) : STATUS_OK;
    if (cuda->peer)
        cuda->peer->ops->destroy(cuda->peer);
    if (cuda->library)
        cuda->library->ops->destroy(cuda->library);
    cuda->transport->ops->destroy(cuda->transport);
    device_arena_fini(&cuda->arena);
    events_fini(&cuda->times);
    window_fini(&cuda->window);
    return status;
}

static void world_open(int size)
{
    int fds[WORLD_MAX][WORLD_MAX];
    world_size = size;
    memset(ranks, 0, sizeof(ranks));
    for (int a = 0; a < size; a++) {
        fds[a][a] = -1;
        for (int b = a + 1; b < size; b++) {
            int pair[2];
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
    }
    for (int rank = 0; rank < size; rank++)
        ck_assert_int_eq(transport_socket_create(rank, size, fds[rank], &ranks[rank].control,
                                                 &ranks[rank].error),
                         STATUS_OK);
    ranks_do(rank_open);
}

static void world_close(void)
{
    ranks_do(rank_close);
    for (int rank = 0; rank < world_size; rank++) {
        ck_assert_int_eq(prompt_devices[rank].open_communicators, 0);
        ranks[rank].control->ops->destroy(ranks[rank].control);
    }
}

// ---- large messages -----------------------------------------------------------------------------

static size_t sent_bytes, own_bytes; // of a message to a peer; of the copy within a rank

static char *filled(size_t bytes, int value)
{
    char *memory = malloc(bytes + 1);
    ck_assert_ptr_nonnull(memory);
    memset(memory, value, bytes);
    return memory;
}

static bool holds(const char *memory, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (char)value)
            return false;
    return true;
}

// Announces a message of sent_bytes from every rank to every other.
static enum status landings_announce(struct rank *r)
{
    struct peer_landings l = {.window_bytes = (size_t)world_size * sent_bytes,
                              .exchange_bytes = own_bytes + (size_t)world_size * sent_bytes,
                              .keep_bytes = SIZE_MAX >> 1};
    struct message_place places[WORLD_MAX];
    for (int peer = 0; peer < world_size; peer++) {
        places[peer] = (struct message_place){.offset = peer * (int64_t)sent_bytes};
        l.places[peer] = &places[peer];
        l.count[peer] = l.send_count[peer] = peer != r->control->rank && sent_bytes > 0;
    }
    return transport_peer_announce(r->cuda.peer, &l, &r->lacks, &r->error);
}

// Makes one exchange and checks the bytes that arrive. Every rank sends sent_bytes to every peer,
// and copies own_bytes within its device. The value of the bytes identifies the sender.
static enum status exchange_make(struct rank *r)
{
    struct message messages[WORLD_MAX];
    int rank = r->control->rank, done = 0;
    enum status status = landings_announce(r);
    if (status != STATUS_OK || r->lacks)
        return STATUS_INTERNAL;
    char *window = transport_peer_window(r->cuda.peer);
    char *sent = filled(sent_bytes, rank + 1), *own = filled(own_bytes, 100 + rank);
    char *copy = filled(own_bytes, 0);
    for (int peer = 0; peer < world_size; peer++)
        messages[peer] = (struct message){.peer = peer,
                                          .send = sent,
                                          .send_bytes = sent_bytes,
                                          .receive = window + (size_t)peer * sent_bytes,
                                          .receive_bytes = sent_bytes};
    messages[rank] = (struct message){rank, own, own_bytes, copy, own_bytes};
    status = r->cuda.peer->ops->start(r->cuda.peer, 1, messages, world_size, &r->error);
    if (status == STATUS_OK)
        status = r->cuda.peer->ops->progress(r->cuda.peer, -1, &done, &r->error);
    bool right = status == STATUS_OK && done && holds(copy, own_bytes, 100 + rank);
    for (int peer = 0; peer < world_size && right; peer++)
        right = peer == rank || holds(window + (size_t)peer * sent_bytes, sent_bytes, peer + 1);
    free(sent);
    free(own);
    free(copy);
    if (status == STATUS_OK && !right)
        status = error_set(&r->error, STATUS_INTERNAL, "bytes are lost");
    return status;
}

// If a rank sends to only one peer, a copy within its device of 8 MiB and more runs on another
// stream than the send.
START_TEST(no_byte_is_lost_of_large_copies_beside_a_send)
{
    static const size_t sizes[] = {0, 1, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1};
    const size_t count = sizeof(sizes) / sizeof(*sizes);
    prompt_reset(1024 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    world_open(_i);
    for (size_t i = 0; i < 2 * count; i++) {
        own_bytes = sizes[i % count];
        sent_bytes = i < count ? 0 : (64 << 10) + i;
        ranks_do(exchange_make);
    }
    world_close();
}
END_TEST

// Sets all counters of exchanges to UINT32_MAX - 2, so that the next exchanges make them wrap.
static enum status counters_age(struct rank *r)
{
    const uint32_t made = UINT32_MAX - 2;
    struct peer_transport *p = (struct peer_transport *)(void *)r->cuda.peer;
    for (int peer = 0; peer < world_size; peer++) {
        p->flags->eager.arrived[peer] = p->flags->eager.ready[peer] = made;
        p->remotes[peer].sends = p->remotes[peer].receives = made;
    }
    return STATUS_OK;
}

START_TEST(counters_of_exchanges_wrap_around)
{
    prompt_reset(1024 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    world_open(3);
    sent_bytes = own_bytes = 1000;
    ranks_do(counters_age);
    for (int i = 0; i < 6; i++)
        ranks_do(exchange_make);
    world_close();
}
END_TEST

// ---- memory -------------------------------------------------------------------------------------

static size_t window_bytes;

static enum status windows_ask(struct rank *r)
{
    r->lacks = false;
    r->error.text[0] = '\0';
    r->cuda.window.told.window_bytes = window_bytes;
    return cuda_windows_announce(&r->cuda, r->control, &r->lacks, &r->error);
}

// When rank 1 turns out to lack the memory, the others have allocated and mapped their windows. The
// simulated runtime aborts if mapped memory is freed.
START_TEST(a_window_that_one_rank_lacks_is_unmapped_before_it_is_freed)
{
    prompt_reset(1024 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    prompt_devices[1].total_bytes = 64 * MIB;
    world_open(3);
    window_bytes = 96 * MIB;
    ranks_do(windows_ask);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert(ranks[rank].lacks);
        ck_assert_int_eq(ranks[rank].error.text[0] != '\0', rank == 1);
        ck_assert_uint_eq(transport_peer_window_bytes(ranks[rank].cuda.peer), 0);
    }
    window_bytes = 32 * MIB;
    ranks_do(windows_ask);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert(!ranks[rank].lacks);
        ck_assert_uint_eq(transport_peer_window_bytes(ranks[rank].cuda.peer), 32 * MIB);
    }
    world_close();
}
END_TEST

static enum status arena_fill(struct rank *r)
{
    r->cuda.device_bytes = r->control->rank == 0 ? 160 * MIB : MIB;
    return device_arena_reserve(&r->cuda.arena, r->cuda.device_bytes, &r->error);
}

// Reserves for a smaller case; the arena keeps the memory of arena_fill().
static enum status arena_keep(struct rank *r)
{
    r->cuda.device_bytes = MIB;
    return device_arena_reserve(&r->cuda.arena, r->cuda.device_bytes, &r->error);
}

static enum status arena_use(struct rank *r)
{
    memset(device_arena_take(&r->cuda.arena, MIB, 1), 1, MIB);
    return STATUS_OK;
}

START_TEST(what_an_arena_keeps_is_given_back_to_windows)
{
    prompt_reset(256 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    world_open(2);
    ranks_do(arena_fill);
    ranks_do(arena_keep);
    ck_assert_uint_ge(ranks[0].cuda.arena.capacity, 160 * MIB);
    window_bytes = 128 * MIB;
    ranks_do(windows_ask);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert(!ranks[rank].lacks);
        ck_assert_str_eq(ranks[rank].error.text, "");
    }
    ck_assert_uint_lt(ranks[0].cuda.arena.capacity, 160 * MIB);
    ranks_do(arena_use);
    // More than the device has.
    window_bytes = 512 * MIB;
    ranks_do(windows_ask);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert(ranks[rank].lacks);
        ck_assert_ptr_nonnull(strstr(ranks[rank].error.text, "the case needs 512 MiB"));
    }
    world_close();
}
END_TEST

// Device 1 still holds memory of a killed pool, which is freed at the third refused allocation.
START_TEST(windows_wait_for_memory_of_processes_that_end)
{
    prompt_reset(256 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    world_open(2);
    prompt_devices[1].leaving_bytes = 160 * MIB;
    prompt_devices[1].taken_bytes += 160 * MIB;
    window_bytes = 128 * MIB;
    ranks_do(windows_ask);
    for (int rank = 0; rank < 2; rank++)
        ck_assert(!ranks[rank].lacks);
    ck_assert_int_eq(prompt_devices[0].refusals, 0);
    ck_assert_int_eq(prompt_devices[1].refusals, 3);
    world_close();
}
END_TEST

// ---- communicators ------------------------------------------------------------------------------

static int64_t element_count;

// Runs an all_reduce of NCCL, as a job does.
static enum status library_run(struct rank *r)
{
    struct collective c = {.world_size = world_size,
                           .operation = COLLECTIVE_ALL_REDUCE,
                           .reduction = REDUCTION_SUM,
                           .dtype = ELEMENT_FP32,
                           .algorithm = ALGORITHM_NCCL,
                           .count = element_count,
                           .iterations = 1};
    struct arena arena;
    struct timings timings = {0};
    struct plan_run run = {.job = 1,
                           .iterations = 1,
                           .library = &c,
                           .arena = &arena,
                           .control = r->control,
                           .timings = &timings};
    struct plan *plan;
    arena_init(&arena);
    enum status status = collective_plan(&c, r->control->rank, &plan, &r->error);
    if (status != STATUS_OK)
        return status;
    run.plan = plan;
    status = cuda_plan_reserve(&r->cuda.base, &run, &r->lacks, &r->error);
    run.library_send = run.library_receive = status == STATUS_OK ? run.buffers[0] : NULL;
    if (status == STATUS_OK)
        status = cuda_plan_execute(&r->cuda.base, &run, &r->error);
    plan_destroy(plan);
    arena_fini(&arena);
    return status;
}

// Beside copy engines the first communicator carries only the exchanges of the verdict, and has few
// channels. The library's collectives get a second one, with all channels (0: NCCL's choice).
START_TEST(the_library_has_a_communicator_of_its_own_beside_copy_engines)
{
    prompt_reset(1024 * MIB);
    unsetenv("CPATTN_TRANSPORT");
    for (int rank = 0; rank < 2; rank++)
        prompt_devices[rank].peer_ms = prompt_devices[rank].nccl_ms = 1;
    world_open(2);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert_ptr_nonnull(ranks[rank].cuda.peer);
        ck_assert_int_eq(prompt_devices[rank].communicators, 1);
        ck_assert_int_gt(prompt_devices[rank].channels[0], 0);
    }
    element_count = 16;
    window_bytes = 128 * MIB;
    ranks_do(windows_ask);
    ranks_do(arena_fill);
    for (int run = 0; run < 2; run++) {
        ranks_do(library_run);
        for (int rank = 0; rank < 2; rank++) {
            ck_assert_int_eq(prompt_devices[rank].communicators, 2);
            ck_assert_int_eq(prompt_devices[rank].channels[1], 0);
            ck_assert_uint_lt(prompt_devices[rank].beside[1], 32 * MIB); // both were freed
            ck_assert_int_eq(prompt_devices[rank].collected_by, 2);
        }
    }
    world_close();
}
END_TEST

// Copy engines are slow on rank 1 only, and all ranks choose NCCL.
START_TEST(where_nccl_exchanges_its_communicator_serves_the_library_too)
{
    prompt_reset(1024 * MIB);
    unsetenv("CPATTN_TRANSPORT");
    for (int rank = 0; rank < 2; rank++)
        prompt_devices[rank] = (struct prompt_device){
            .total_bytes = 1024 * MIB, .peer_ms = rank == 1 ? 5 : 1, .nccl_ms = 2};
    world_open(2);
    element_count = 16;
    ranks_do(library_run);
    for (int rank = 0; rank < 2; rank++) {
        const struct prompt_device *d = &prompt_devices[rank];
        ck_assert_ptr_null(ranks[rank].cuda.peer);
        ck_assert_int_eq(d->communicators, 2);
        ck_assert_int_eq(d->open_communicators, 1);
        ck_assert_int_eq(d->channels[1], 0);
        ck_assert_int_eq(d->collected_by, 2);
    }
    world_close();
}
END_TEST

START_TEST(without_copy_engines_there_is_one_communicator)
{
    prompt_reset(1024 * MIB);
    setenv("CPATTN_TRANSPORT", "nccl", 1);
    world_open(2);
    element_count = 16;
    ranks_do(library_run);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert_int_eq(prompt_devices[rank].communicators, 1);
        ck_assert_int_eq(prompt_devices[rank].channels[0], 0);
        ck_assert_int_eq(prompt_devices[rank].collected_by, 1);
    }
    world_close();
}
END_TEST

// The windows hold the memory that the arena needs. They are freed at once: the ranks do not wait
// for other processes first.
START_TEST(windows_of_the_case_before_are_freed_at_once_for_an_arena)
{
    prompt_reset(256 * MIB);
    setenv("CPATTN_TRANSPORT", "peer", 1);
    world_open(2);
    window_bytes = 128 * MIB;
    ranks_do(windows_ask);
    element_count = 20 * (int64_t)MIB; // two buffers of 80 MiB
    ranks_do(library_run);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert(!ranks[rank].lacks);
        ck_assert_uint_eq(transport_peer_window_bytes(ranks[rank].cuda.peer), 0);
        ck_assert_int_le(prompt_devices[rank].refusals, 2);
    }
    world_close();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("exchanges");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, no_byte_is_lost_of_large_copies_beside_a_send, 2, WORLD_MAX + 1);
    tcase_add_test(all, counters_of_exchanges_wrap_around);
    tcase_add_test(all, a_window_that_one_rank_lacks_is_unmapped_before_it_is_freed);
    tcase_add_test(all, what_an_arena_keeps_is_given_back_to_windows);
    tcase_add_test(all, windows_wait_for_memory_of_processes_that_end);
    tcase_add_test(all, the_library_has_a_communicator_of_its_own_beside_copy_engines);
    tcase_add_test(all, where_nccl_exchanges_its_communicator_serves_the_library_too);
    tcase_add_test(all, without_copy_engines_there_is_one_communicator);
    tcase_add_test(all, windows_of_the_case_before_are_freed_at_once_for_an_arena);
    suite_add_tcase(s, all);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
