// SPDX-License-Identifier: Apache-2.0
// Tests the device's executor of plans with a simulated runtime (tests/cuda/fake_cuda.h). The work
// runs in random orders that streams and events permit; the bits must be those of the CPU's
// executor.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "judge/digest.h"
#include "plan/team_order.h"
#include "rank/cuda/choice.h"
#include "rank/cuda/executor.h"
#include "rank/cuda/window.h"
#include "rank/inputs.h"
#include "rank/job.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"
#include "tests/support/world.h"
#include "transport/peer.h"

#define WORLD_MAX  5
#define TOKENS_MAX 40
#define CASES      80
#define ORDERS     4
#define REPEATS    7

// One rank of a case. It executes its plan and does not verify.
struct device_rank {
    struct attention_backend *backend;
    struct transport *transport;
    struct transport *control, *peer; // NULL for BY_MESSAGES
    struct window window;
    struct cuda_executor *executor;
    struct plan *plan;
    struct own_provider own;
    struct attends *attends;
    struct job job;
    struct cuda_execution execution;
    void *buffers[64];
    char *staging;
};

// How the ranks of a world exchange.
enum way { BY_MESSAGES, BY_COPY_ENGINES, BY_KERNELS, WAYS };

static struct progress words[WORLD_SIZE_MAX];
static enum way way;
static struct device_rank ranks[WORLD_MAX];

static void *memory_take(int64_t bytes)
{
    void *memory = malloc((size_t)bytes + 1);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0xff, (size_t)bytes);
    return memory;
}

static void input_fill(const struct job *j, enum input_tensor tensor, enum shard_side side,
                       void *data)
{
    struct span *spans = calloc((size_t)shard_spans_max(j->c) + 1, sizeof(*spans));
    int count = shard_spans(j->c, side, j->rank, spans);
    if (data)
        inputs_fill(j->c, tensor, j->rank, spans, count, data);
    free(spans);
}

static void inputs_fill_all(const struct job *j)
{
    struct span *spans = calloc((size_t)shard_spans_max(j->c) + 1, sizeof(*spans));
    char *kv = job_memory(j, BUFFER_INPUT_KV);
    input_fill(j, INPUT_K, SIDE_KV, kv);
    input_fill(j, INPUT_V, SIDE_KV, kv ? kv + job_key_bytes(j) : NULL);
    input_fill(j, INPUT_Q, SIDE_Q, job_memory(j, BUFFER_INPUT_Q));
    input_fill(j, INPUT_DO, SIDE_Q, job_memory(j, BUFFER_INPUT_DO));
    if (job_memory(j, BUFFER_INPUT_SINK))
        inputs_fill_sink(j->c, job_memory(j, BUFFER_INPUT_SINK));
    if (job_memory(j, BUFFER_INPUT_BIAS))
        inputs_fill_bias(j->c, j->rank, spans, job_memory(j, BUFFER_INPUT_BIAS));
    free(spans);
}

// ---- ranks that write into each other's windows ----

// Announces the rank's window, after creating its peer transport if needed. Returns NULL after an
// error.
static void *rank_join(void *argument)
{
    struct device_rank *r = argument;
    struct error error;
    bool lacks = false;
    enum status status = STATUS_OK;
    if (!r->peer)
        status = transport_peer_create(r->control, transport_nccl_stream(r->transport),
                                       way == BY_KERNELS, &r->peer, &error);
    if (status == STATUS_OK)
        status = transport_peer_announce(r->peer, &r->window.told, &lacks, &error);
    return status == STATUS_OK && !lacks ? r : NULL;
}

// Calls `what` on all ranks at the same time, each in its own thread. No call may return NULL.
static void ranks_do(int world_size, void *(*what)(void *rank))
{
    pthread_t threads[WORLD_MAX];
    for (int rank = 0; rank < world_size; rank++)
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, what, &ranks[rank]), 0);
    for (int rank = 0; rank < world_size; rank++) {
        void *joined;
        ck_assert_int_eq(pthread_join(threads[rank], &joined), 0);
        ck_assert_ptr_nonnull(joined);
    }
}

static void controls_open(int world_size)
{
    struct error error;
    int fds[WORLD_MAX][WORLD_MAX];
    for (int a = 0; a < world_size; a++) {
        fds[a][a] = -1;
        for (int b = a + 1; b < world_size; b++) {
            int pair[2];
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
    }
    for (int rank = 0; rank < world_size; rank++)
        ck_assert_int_eq(
            transport_socket_create(rank, world_size, fds[rank], &ranks[rank].control, &error),
            STATUS_OK);
}

static bool lies_in_window(const struct device_rank *r, int buffer)
{
    return r->peer && r->window.offsets[buffer] >= 0;
}

static void rank_init(struct device_rank *r, const struct cp_case *c, int rank)
{
    struct error error;
    memset(r, 0, sizeof(*r));
    ck_assert_int_eq(plan_create(c, rank, &r->plan, &error), STATUS_OK);
    ck_assert_int_le(r->plan->buffer_count, 64);
    r->backend = fake_backend();
    own_provider_init(&r->own, &backend_cuda, r->backend);
    ck_assert_int_eq(attends_create(r->plan, &r->own, NULL, false, &r->attends, &error), STATUS_OK);
    r->transport = fake_transport(rank, c->world_size);
    ck_assert_int_eq(window_set(&r->window, r->plan, &error), STATUS_OK);
}

// Fills all memory of a rank with NaN and then its inputs, and launches its plan.
static void rank_run(struct device_rank *r)
{
    struct error error;
    if (r->peer)
        memset(transport_peer_window(r->peer), 0xff, r->window.bytes);
    for (int i = 0; i < r->plan->buffer_count; i++)
        if (!lies_in_window(r, i))
            memset(r->buffers[i], 0xff, (size_t)r->plan->buffers[i].bytes);
    inputs_fill_all(&r->job);
    ck_assert_int_eq(cuda_executor_start(r->executor, &r->execution, &error), STATUS_OK);
}

static void rank_start(struct device_rank *r, const struct cp_case *c, int rank)
{
    struct error error;
    struct transport *transport = r->peer ? r->peer : r->transport;
    char *window = r->peer ? transport_peer_window(r->peer) : NULL;
    ck_assert_int_eq(cuda_executor_create(r->backend, transport,
                                          transport_nccl_stream(r->transport), words, &r->executor,
                                          &error),
                     STATUS_OK);
    for (int i = 0; i < r->plan->buffer_count; i++)
        r->buffers[i] = lies_in_window(r, i) ? window + r->window.offsets[i]
                                             : memory_take(r->plan->buffers[i].bytes);
    r->staging = memory_take(window_staging_bytes(r->plan, false));
    r->job = (struct job){.c = c, .rank = rank, .plan = r->plan, .buffers = r->buffers};
    r->execution =
        (struct cuda_execution){.plan = r->plan,
                                .buffers = r->buffers,
                                .staging = window ? window + r->window.staging : r->staging,
                                .job = 7,
                                .attends = r->attends,
                                .windows = r->peer ? transport_peer_windows(r->peer) : 0};
    rank_run(r);
}

static void rank_fini(struct device_rank *r)
{
    cuda_executor_destroy(r->executor);
    for (int i = 0; i < r->plan->buffer_count; i++)
        if (!lies_in_window(r, i))
            free(r->buffers[i]);
    free(r->staging);
    attends_destroy(r->attends);
    plan_destroy(r->plan);
}

static uint64_t rank_digest(const struct device_rank *r)
{
    uint64_t digest = DIGEST_START;
    for (int i = 0; i < JOB_OUTPUTS; i++) {
        int64_t bytes;
        const void *data = job_buffer(&r->job, job_outputs[i], &bytes);
        digest = digest_add(digest, data, (size_t)bytes);
    }
    return digest;
}

static void world_start(const struct cp_case *c, enum way by)
{
    way = by;
    memset(words, 0, sizeof(words));
    for (int rank = 0; rank < c->world_size; rank++)
        rank_init(&ranks[rank], c, rank);
    if (way != BY_MESSAGES) {
        controls_open(c->world_size);
        ranks_do(c->world_size, rank_join);
    }
    for (int rank = 0; rank < c->world_size; rank++)
        rank_start(&ranks[rank], c, rank);
}

static void world_end(const struct cp_case *c)
{
    fake_reset();
    for (int rank = 0; rank < c->world_size; rank++) {
        struct device_rank *r = &ranks[rank];
        rank_fini(r);
        window_fini(&r->window);
        if (r->peer)
            r->peer->ops->destroy(r->peer);
        if (r->control)
            r->control->ops->destroy(r->control);
    }
}

static void case_draw(uint64_t seed, struct cp_case *c)
{
    generate_case(seed, WORLD_MAX, TOKENS_MAX, c);
    c->explore_seed = seed % 2; // 1: delays, and NaN in receive regions before exchanges
}

// ---- tests ----

// With operation_times every operation has times, and starts no earlier than the operations that it
// waits for end.
static void op_times_check(const struct plan *plan, const struct op_times *times)
{
    ck_assert_int_eq(times->count, plan->c.operation_times ? plan->op_count : 0);
    for (int32_t i = 0; i < times->count; i++) {
        const struct op *op = &plan->ops[i];
        ck_assert_uint_ge(times->list[i].end_ns, times->list[i].start_ns);
        for (int32_t w = 0; w < op->wait_count; w++)
            ck_assert_uint_ge(times->list[i].start_ns,
                              times->list[plan->waits[op->wait_first + w]].end_ns);
    }
}

static bool exchanges(const struct plan *plan)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE)
            return true;
    return false;
}

// Exchange and exposed times must not exceed the plan's time. The exchange time of a graph is not
// compared: it comes from another clock, and the simulated runtime may run any other work between
// the starts of the two clocks.
static void timings_check(const struct plan *plan, const struct timings *t)
{
    uint64_t total_ns = t->forward_ns + t->backward_ns;
    ck_assert_uint_le(t->exposed_ns, total_ns);
    ck_assert_int_eq(exchanges(plan), t->exchange_ns > 0);
    if (plan->c.graph)
        return;
    ck_assert(!plan->c.training || t->backward_ns > 0);
    ck_assert_uint_le(t->exchange_ns, total_ns);
}

static bool lands_in_pieces(const struct window *w)
{
    for (int peer = 0; peer < WORLD_SIZE_MAX; peer++)
        for (int i = 0; i < w->told.count[peer]; i++)
            if (w->told.places[peer][i].strides.bytes > 0)
                return true;
    return false;
}

// Runs a case in ORDERS random orders for each way, and compares digests with the CPU's. Returns
// true if messages to a window landed in strided pieces.
static bool orders_check(struct cp_case c, uint64_t random)
{
    struct rank_report reports[WORLD_MAX];
    struct error error;
    bool pieces = false;
    ck_assert_int_eq(world_run(&c, reports, &error), STATUS_OK);
    for (int order = 0; order < WAYS * ORDERS; order++) {
        c.operation_times = order / WAYS % 2;
        world_start(&c, (enum way)(order % WAYS));
        while (fake_step(&random))
            continue;
        ck_assert_msg(fake_is_idle(), "something waits for what never comes");
        for (int rank = 0; rank < c.world_size; rank++) {
            struct timings timings = {0};
            struct op_times op_times;
            ck_assert_int_eq(
                cuda_executor_timings(ranks[rank].executor, &timings, &op_times, &error),
                STATUS_OK);
            op_times_check(ranks[rank].plan, &op_times);
            ck_assert_uint_eq(rank_digest(&ranks[rank]), reports[rank].digest);
            timings_check(ranks[rank].plan, &timings);
        }
        pieces = pieces || (ranks[0].peer && lands_in_pieces(&ranks[0].window));
        world_end(&c);
    }
    return pieces;
}

START_TEST(any_order_gives_the_bits_of_the_cpu)
{
    struct cp_case c;
    case_draw((uint64_t)_i, &c);
    (void)orders_check(c, (uint64_t)_i + 1);
}
END_TEST

// The most unlike sequences that a team still stores in the order of positions. Their exchange
// needs more copies to a peer than COPIES_MOST (rank/cuda/window.c), so it packs its regions.
#define MANY TEAM_SEQUENCES_MAX

// Head exchanges (all-to-all) copy strided slices of heads without packing, if the slice of a row
// is long enough: with one or two sequences, with equal or unequal numbers of heads per rank. With
// MANY sequences of unlike lengths they pack.
START_TEST(heads_travel_as_they_lie)
{
    static const int32_t heads[] = {2, 5}, batches[] = {1, 2, MANY};
    int32_t lengths[MANY];
    struct cp_case c;
    case_init(&c);
    c.world_size = 2 + _i % 2;
    c.comm = COMM_A2A;
    c.heads = c.kv_heads = heads[_i / 2 % 2];
    c.batch = batches[_i / 4];
    c.seqlen_q = c.seqlen_kv = 96;
    c.head_dim_qk = 32;
    c.head_dim_v = 40;
    c.format = c.batch == MANY ? FORMAT_THD : _i % 3 == 2 ? FORMAT_SBHD : FORMAT_BSHD;
    c.mask = MASK_CAUSAL;
    for (int i = 0; i < MANY; i++)
        lengths[i] = 5 + i * 7 % 90;
    if (c.batch == MANY)
        case_list_set(&c, LIST_LENGTHS_Q, lengths, MANY);
    ck_assert_int_eq(orders_check(c, (uint64_t)_i + 1), c.batch < MANY);
    struct plan *plan;
    ck_assert_int_eq(plan_create(&c, 0, &plan, NULL), STATUS_OK);
    ck_assert_int_eq(window_staging_bytes(plan, true) > 0, c.batch == MANY);
    plan_destroy(plan);
}
END_TEST

// Gives a rank other buffers and a new number of its windows, as another case can do.
static void rank_move(struct device_rank *r)
{
    for (int i = 0; i < r->plan->buffer_count; i++) {
        void *old = r->buffers[i];
        if (lies_in_window(r, i))
            continue;
        r->buffers[i] = memory_take(r->plan->buffers[i].bytes);
        free(old);
    }
    r->execution.windows += r->peer != NULL;
}

// Runs the plans once more, at random as a graph or as single launches, with or without timings,
// and compares digests. A graph is captured, replayed, or captured again because memory has moved.
static void world_repeat(const struct cp_case *c, const struct rank_report *reports,
                         uint64_t *random)
{
    bool graph = generate_below(random, 2), moved = generate_below(random, 4) == 0;
    bool untimed = !graph && generate_below(random, 2);
    for (int rank = 0; rank < c->world_size; rank++) {
        struct device_rank *r = &ranks[rank];
        r->plan->c.graph = graph;
        r->execution.untimed = untimed;
        if (moved)
            rank_move(r);
    }
    if (ranks[0].peer)
        ranks_do(c->world_size, rank_join); // each case announces again
    for (int rank = 0; rank < c->world_size; rank++)
        rank_run(&ranks[rank]);
    while (fake_step(random))
        continue;
    ck_assert_msg(fake_is_idle(), "something waits for what never comes");
    for (int rank = 0; rank < c->world_size; rank++) {
        struct timings timings = {0};
        struct op_times op_times;
        struct error error;
        ck_assert_uint_eq(rank_digest(&ranks[rank]), reports[rank].digest);
        if (untimed)
            continue;
        ck_assert_int_eq(cuda_executor_timings(ranks[rank].executor, &timings, &op_times, &error),
                         STATUS_OK);
        timings_check(ranks[rank].plan, &timings);
    }
}

START_TEST(graphs_and_single_launches_give_the_same_bits)
{
    struct cp_case c;
    struct rank_report reports[WORLD_MAX];
    struct error error;
    uint64_t random = (uint64_t)_i + 1;
    case_draw((uint64_t)_i, &c);
    ck_assert_int_eq(world_run(&c, reports, &error), STATUS_OK);
    world_start(&c, (enum way)(_i % WAYS));
    while (fake_step(&random))
        continue;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        world_repeat(&c, reports, &random);
    world_end(&c);
}
END_TEST

static void *rank_trim(void *argument)
{
    const struct device_rank *r = argument;
    return transport_peer_trim(r->peer, &(struct error){0}) == STATUS_OK ? argument : NULL;
}

static void *rank_free(void *argument)
{
    const struct device_rank *r = argument;
    return transport_peer_free(r->peer, &(struct error){0}) == STATUS_OK ? argument : NULL;
}

// _i = 1: rank 3 may keep less than the size of its window, so all ranks free their windows.
START_TEST(all_ranks_keep_their_windows_or_none)
{
    struct cp_case c;
    case_init(&c);
    c.world_size = WORLD_MAX;
    c.seqlen_q = c.seqlen_kv = TOKENS_MAX;
    world_start(&c, BY_COPY_ENGINES);
    size_t bytes = transport_peer_window_bytes(ranks[0].peer);
    ck_assert_uint_gt(bytes, 0);
    for (int rank = 0; rank < WORLD_MAX; rank++)
        ranks[rank].window.told.keep_bytes = rank == 3 && _i ? bytes - 1 : bytes;
    ranks_do(WORLD_MAX, rank_join);
    ranks_do(WORLD_MAX, rank_trim);
    for (int rank = 0; rank < WORLD_MAX; rank++)
        ck_assert_uint_eq(transport_peer_window_bytes(ranks[rank].peer), _i ? 0 : bytes);
    // Kept windows can be freed when their memory is needed.
    ranks_do(WORLD_MAX, rank_free);
    for (int rank = 0; rank < WORLD_MAX; rank++)
        ck_assert_uint_eq(transport_peer_window_bytes(ranks[rank].peer), 0);
    world_end(&c);
}
END_TEST

// True for the operations that a progress word may name: only their ends are marked.
static bool is_told(const struct op *op)
{
    return op->kind == OP_EXCHANGE || op->kind == OP_ATTEND_FORWARD ||
           op->kind == OP_ATTEND_BACKWARD;
}

static bool word_names_an_operation(const struct plan *plan, struct progress_view view)
{
    for (int i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        int phase = op->phase == PHASE_FORWARD ? REPORT_FORWARD : REPORT_BACKWARD;
        if (is_told(op) && view.phase == phase && view.step == op->step)
            return true;
    }
    return view.phase == REPORT_REFERENCE;
}

START_TEST(a_broken_device_is_reported_with_the_operation)
{
    struct cp_case c;
    struct error error;
    uint64_t random = (uint64_t)_i + 1;
    case_draw((uint64_t)_i, &c);
    world_start(&c, BY_MESSAGES);
    int steps = (int)generate_below(&random, 200);
    while (steps-- > 0 && fake_step(&random))
        continue;
    fake_break(true);
    for (int rank = 0; rank < c.world_size; rank++) {
        ck_assert_int_eq(cuda_executor_wait(ranks[rank].executor, &error), STATUS_INTERNAL);
        ck_assert_ptr_nonnull(strstr(error.text, "cudaErrorIllegalAddress"));
        struct progress_view view = progress_load(&words[rank]);
        ck_assert_uint_eq(view.job, 7);
        ck_assert_msg(word_names_an_operation(ranks[rank].plan, view), "phase %d step %d",
                      view.phase, view.step);
    }
    world_end(&c);
}
END_TEST

// The streams of one rank are held. The progress words of the others must lead to this rank.
START_TEST(the_rank_that_hangs_is_found)
{
    struct cp_case c;
    struct error error;
    uint64_t random = 1;
    case_init(&c);
    c.world_size = WORLD_MAX;
    c.comm = (enum case_comm[]){COMM_P2P, COMM_ALL_GATHER}[_i];
    c.seqlen_q = c.seqlen_kv = TOKENS_MAX;
    world_start(&c, BY_MESSAGES);
    int culprit = 3;
    fake_hold(attention_cuda_stream(ranks[culprit].backend));
    fake_hold(transport_nccl_stream(ranks[culprit].transport));
    while (fake_step(&random))
        continue;
    ck_assert(!fake_is_idle());
    fake_break(true);
    for (int round = 0; round < 2; round++)
        for (int rank = 0; rank < c.world_size; rank++)
            ck_assert_int_eq(cuda_executor_wait(ranks[rank].executor, &error), STATUS_INTERNAL);
    ck_assert_int_eq(progress_culprit(words, c.world_size), culprit);
    world_end(&c);
}
END_TEST

static void choice_check(struct choice c, bool nccl, const char *text)
{
    char told[EXCHANGE_TEXT_MAX];
    ck_assert_int_eq(choice_is_nccl(&c), nccl);
    choice_describe(&c, told, sizeof(told));
    ck_assert_str_eq(told, text);
}

START_TEST(nccl_is_chosen_where_it_is_twice_as_fast)
{
    choice_check((struct choice){0, 0}, false, "copy engines");
    choice_check((struct choice){21000, 46000}, false,
                 "copy engines (2 MiB in 21 us, NCCL in 46 us)");
    choice_check((struct choice){50000, 25000}, false,
                 "copy engines (2 MiB in 50 us, NCCL in 25 us)");
    choice_check((struct choice){50000, 24999}, true,
                 "NCCL (2 MiB in 24 us, copy engines in 50 us)");
}
END_TEST

static void kept_worlds_close(void)
{
    world_close_all();
}

static Suite *suite(void)
{
    Suite *s = suite_create("executor_cuda");
    TCase *orders = tcase_create("orders");
    tcase_set_timeout(orders, 60);
    tcase_add_checked_fixture(orders, NULL, kept_worlds_close);
    tcase_add_loop_test(orders, any_order_gives_the_bits_of_the_cpu, 0, CASES);
    tcase_add_loop_test(orders, graphs_and_single_launches_give_the_same_bits, 0, CASES);
    tcase_add_loop_test(orders, heads_travel_as_they_lie, 0, 12);
    tcase_add_loop_test(orders, all_ranks_keep_their_windows_or_none, 0, 2);
    suite_add_tcase(s, orders);
    TCase *progress = tcase_create("progress");
    tcase_set_timeout(progress, 60);
    tcase_add_loop_test(progress, a_broken_device_is_reported_with_the_operation, 0, CASES);
    tcase_add_loop_test(progress, the_rank_that_hangs_is_found, 0, 2);
    suite_add_tcase(s, progress);
    TCase *choices = tcase_create("choices");
    tcase_add_test(choices, nccl_is_chosen_where_it_is_twice_as_fast);
    suite_add_tcase(s, choices);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
