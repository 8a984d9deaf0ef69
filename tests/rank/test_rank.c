// SPDX-License-Identifier: Apache-2.0
// Whole cases over worlds of forked ranks: verdicts, repeats, failures. test_random_cases.c has
// random cases and explored orders.
#include "tests/support/part.h"
#include "tests/support/runner.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plan/cost.h"
#include "rank/session.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/world.h"

static struct rank_report reports[WORLD_SIZE_MAX];

static void assert_passes(const struct cp_case *c)
{
    struct error error = {0};
    static char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s: %s", text, error.text);
    if (!world_passed(reports, c->world_size))
        world_print(c, reports);
    ck_assert_msg(world_passed(reports, c->world_size), "%s fails", text);
}

static uint64_t digest_of(const struct cp_case *c)
{
    struct error error = {0};
    if (c->verify != VERIFY_OFF)
        assert_passes(c);
    else
        ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s", error.text);
    return world_digest(reports, c->world_size);
}

// ---- communication ----------------

static const enum case_comm comms[] = {COMM_P2P, COMM_ALL_GATHER, COMM_A2A, COMM_A2A_P2P};
#define COMMS ((int)(sizeof(comms) / sizeof(*comms)))

// `choice` selects one of the group sizes that divide the world size.
static void comm_set(struct cp_case *c, enum case_comm comm, uint64_t choice)
{
    c->comm = comm;
    c->a2a_size = CASE_A2A_SIZE_DEFAULT;
    if (comm != COMM_A2A_P2P)
        return;
    c->a2a_size = 1;
    while (choice > 0) {
        c->a2a_size = c->a2a_size % c->world_size + 1;
        choice -= c->world_size % c->a2a_size == 0;
    }
}

// ---- verdicts ----

struct model {
    const char *name;
    int heads, kv_heads;
    enum case_mask mask;
};

// TransformerEngine's models without window, bias and uneven head dims.
static const struct model models[] = {
    {"cp_1_0", 12, 12, MASK_CAUSAL},
    {"cp_1_1", 12, 12, MASK_NONE},
    {"cp_2_0", 32, 4, MASK_CAUSAL},
    {"cp_2_1", 12, 2, MASK_NONE},
};

static void model_case(struct cp_case *c, int index, int world_size, enum case_dtype dtype)
{
    const struct model *model = &models[index];
    case_init(c);
    snprintf(c->model, sizeof(c->model), "%s", model->name);
    c->world_size = world_size;
    c->dtype = dtype;
    c->heads = model->heads;
    c->kv_heads = model->kv_heads;
    c->mask = model->mask;
    c->batch = 2;
    c->head_dim_qk = c->head_dim_v = 128;
    c->seqlen_q = c->seqlen_kv = 64;
}

#define MODELS ((int)(sizeof(models) / sizeof(*models)))

START_TEST(known_models_pass)
{
    static const struct {
        enum case_dtype dtype;
        enum case_inputs inputs;
    } kinds[] = {{DTYPE_BF16, INPUTS_SHARP}, {DTYPE_FP16, INPUTS_SHARP}, {DTYPE_FP16, INPUTS_TE}};
    const int part = test_part();
    for (int i = (_i + _i / MODELS) % part; i < 6; i += part) {
        struct cp_case c;
        model_case(&c, _i % MODELS, i % 2 ? 4 : 2, kinds[i / 2].dtype);
        c.inputs = kinds[i / 2].inputs;
        comm_set(&c, comms[_i / MODELS], 1);
        assert_passes(&c);
        ck_assert_int_eq(reports[0].figures_count, 10);
        ck_assert(reports[0].flops > 0);
    }
    world_close_all();
}
END_TEST

static void draw_softmax(uint64_t *state, struct cp_case *c)
{
    c->softmax = (enum case_softmax)(SOFTMAX_VANILLA + generate_below(state, 3));
    c->max_logit = generate_below(state, 2) == 0;
    c->softcap = generate_below(state, 3) == 0 ? 0.5 + (double)generate_below(state, 10) : 0;
}

static int figures_of(const struct rank_report *report, int tensor)
{
    int count = 0;
    for (int i = 0; i < report->figures_count; i++)
        count += report->figures[i].tensor == tensor;
    return count;
}

START_TEST(any_softmax_passes)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct cp_case c;
        uint64_t state = seed + 5555 * (uint64_t)_i;
        generate_case(6000 + state, 8, 60, &c);
        comm_set(&c, comms[_i], seed);
        draw_softmax(&state, &c);
        assert_passes(&c);
        for (int rank = 0; rank < c.world_size; rank++) {
            ck_assert_int_eq(figures_of(&reports[rank], TENSOR_MAX_LOGIT), c.max_logit);
            ck_assert_int_eq(figures_of(&reports[rank], TENSOR_DSINK),
                             c.training && c.softmax == SOFTMAX_LEARNABLE);
        }
    }
    world_close_all();
}
END_TEST

// Each shape of a bias in each way of communication.
START_TEST(any_bias_passes)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct cp_case c;
        uint64_t state = seed + 3333 * (uint64_t)_i;
        generate_case(8000 + state, 6, 40, &c);
        comm_set(&c, comms[_i], seed);
        c.bias = (enum case_bias)(BIAS_111S + seed % 8);
        if (seed % 3 == 0)
            draw_softmax(&state, &c);
        assert_passes(&c);
        for (int rank = 0; rank < c.world_size; rank++)
            ck_assert_int_eq(figures_of(&reports[rank], TENSOR_DBIAS), c.training);
    }
    world_close_all();
}
END_TEST

// Difficult lengths: chunks of only padding, padding only at the end, sequences shorter than the
// world size.
START_TEST(lengths_that_have_failed_elsewhere_pass)
{
    static const struct {
        int batch, world_size;
        const char *lengths, *padded;
    } samples[] = {{6, 2, "9,8,8,12,8,12", "12,8,8,12,8,12"},
                   {2, 4, "174,206", "176,208"},
                   {3, 4, "31,1,0", "32,8,40"},
                   {5, 4, "0,1,2,3,64", "0,1,2,3,64"}};
    for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
        struct cp_case c = cases_thd(samples[i].lengths, "", samples[i].padded, "");
        c.batch = samples[i].batch;
        c.world_size = samples[i].world_size;
        c.head_dim_qk = c.head_dim_v = 32;
        comm_set(&c, comms[_i], i);
        assert_passes(&c);
        c.mask = MASK_NONE;
        assert_passes(&c);
    }
    world_close_all();
}
END_TEST

struct head_counts {
    int world_size, heads, kv_heads;
};

// Heads that the group size does not divide, key heads for several members, and members without key
// heads.
static const struct head_counts head_counts[] = {{2, 5, 5}, {3, 4, 2}, {3, 8, 1},  {4, 6, 2},
                                                 {4, 3, 1}, {5, 2, 2}, {6, 14, 7}, {8, 12, 4}};
#define HEAD_COUNTS ((int)(sizeof(head_counts) / sizeof(*head_counts)))

START_TEST(any_number_of_heads_can_be_dealt)
{
    const struct head_counts *n = &head_counts[_i];
    for (uint64_t i = 0; i < 4; i++) {
        struct cp_case c;
        model_case(&c, 0, n->world_size, DTYPE_FP32);
        comm_set(&c, i == 0 ? COMM_A2A : COMM_A2A_P2P, i);
        c.heads = n->heads;
        c.kv_heads = n->kv_heads;
        c.head_dim_qk = 24;
        c.head_dim_v = 16;
        c.seqlen_q = c.seqlen_kv = 61;
        c.format = i % 2 ? FORMAT_SBHD : FORMAT_BSHD;
        assert_passes(&c);
    }
    world_close_all();
}
END_TEST

// The FLOPs of all ranks add up to those of the case, for every world size.
START_TEST(the_work_is_divided)
{
    struct cp_case c;
    struct case_cost cost;
    for (int i = 0; i < 4 * COMMS; i++) {
        double flops = 0;
        int world_size = 1 + i % 4;
        model_case(&c, 3, world_size, DTYPE_BF16);
        comm_set(&c, comms[i / 4], 1);
        c.training = false;
        assert_passes(&c);
        for (int rank = 0; rank < world_size; rank++)
            flops += reports[rank].flops;
        case_cost(&c, &cost);
        ck_assert_double_eq_tol(flops, cost.forward, 1);
    }
    world_close_all();
}
END_TEST

// ---- the same bits ----

START_TEST(cases_do_not_affect_later_ones)
{
    struct cp_case c, other;
    model_case(&c, 2, 2, DTYPE_BF16);
    c.heads = 8;
    c.kv_heads = 1;
    c.seqlen_q = c.seqlen_kv = 67;
    comm_set(&c, comms[_i], 1);
    uint64_t digest = digest_of(&c);
    for (uint64_t seed = 0; seed < 10; seed++) {
        do
            generate_case(2000 + seed++, 4, 96, &other);
        while (other.world_size != 2);
        comm_set(&other, comms[seed % COMMS], seed);
        assert_passes(&other);
        ck_assert_uint_eq(digest_of(&c), digest);
    }
    // The memory of a large case is freed after it. That does not change the bits, either.
    model_case(&other, 1, 2, DTYPE_FP32);
    other.seqlen_q = other.seqlen_kv = 16;
    other.batch = 600;
    other.heads = other.kv_heads = 4;
    other.training = false;
    assert_passes(&other);
    ck_assert_uint_eq(digest_of(&c), digest);
    // The verdict does not change the bits.
    c.verify = VERIFY_OFF;
    ck_assert_uint_eq(digest_of(&c), digest);
    c.verify = VERIFY_AUTO;
    // A new world does not change them.
    world_close_all();
    ck_assert_uint_eq(digest_of(&c), digest);
    // Another case has other bits.
    c.seed++;
    ck_assert_uint_ne(digest_of(&c), digest);
    world_close_all();
}
END_TEST

// ---- failures ----

START_TEST(a_case_of_another_world_size_is_refused)
{
    struct cp_case c;
    struct error error = {0};
    struct world *w = world_create(2);
    model_case(&c, 0, 3, DTYPE_BF16);
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "a job with world_size 3 was sent to a pool of 2 ranks");
    ck_assert_int_eq(world_failure(w)->kind, FAILURE_OWN);
    world_destroy(w);
    w = world_create(2);
    model_case(&c, 0, 2, DTYPE_BF16);
    c.kv_heads = 5;
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_INVALID_ARGUMENT);
    world_destroy(w);
}
END_TEST

// The CPU's engine with changes on rank 1: a batch of 3 finds no memory, a batch of 4 is a fault,
// and a batch of 5 finds memory only after all ranks have freed what they hold.
static bool held = true;

static enum status lean_spare(struct engine *e, bool *freed, struct error *error)
{
    (void)e;
    (void)error;
    *freed = held;
    held = false;
    return STATUS_OK;
}

static enum status lean_admit(struct engine *e, const struct job *j, struct error *error)
{
    (void)e;
    if (j->rank == 1 && j->c->batch == 5 && held)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "five are too many as it is");
    if (j->rank == 1 && j->c->batch == 3)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "three are too many");
    if (j->rank == 1 && j->c->batch == 4)
        return error_set(error, STATUS_INTERNAL, "four are a fault");
    return STATUS_OK;
}

static enum status lean_create(const struct engine_setup *setup, struct engine **engine,
                               struct error *error)
{
    static struct engine_ops ops;
    enum status status = engine_cpu.create(setup, engine, error);
    if (status != STATUS_OK)
        return status;
    ops = *(*engine)->ops;
    ops.admit = lean_admit;
    ops.spare = lean_spare;
    (*engine)->ops = &ops;
    return STATUS_OK;
}

static const struct engine_kind engine_lean = {.program = "lean", .create = lean_create};

struct errand {
    struct world *world;
    struct cp_case c;
    struct error error;
    enum status status;
};

static void *errand_run(void *argument)
{
    struct errand *e = argument;
    e->status = world_run_on(e->world, &e->c, reports, &e->error);
    return NULL;
}

static bool somebody_waits_for(const struct world *w, int world_size, int rank)
{
    for (int i = 0; i < world_size; i++)
        if (progress_load(&world_progress(w)[i]).waiting_for == rank)
            return true;
    return false;
}

// The progress words identify a stopped rank: in an exchange, and when ranks agree on memory. The
// error names a killed rank.
START_TEST(the_rank_that_delays_the_others_is_found)
{
    world_engine(_i == 0 ? &engine_cpu : &engine_lean);
    for (int victim = 0; victim < 4; victim++) {
        struct errand e = {.world = world_create(4)};
        pthread_t thread;
        model_case(&e.c, 0, 4, DTYPE_BF16);
        ck_assert_int_eq(world_run_on(e.world, &e.c, reports, &e.error), STATUS_OK);
        kill(world_pid(e.world, victim), SIGSTOP);
        ck_assert_int_eq(pthread_create(&thread, NULL, errand_run, &e), 0);
        while (!somebody_waits_for(e.world, 4, victim))
            usleep(1000);
        // All the others end up waiting for each other or for the victim.
        for (int rank = 0; rank < 4; rank++)
            while (rank != victim && progress_load(&world_progress(e.world)[rank]).waiting_for < 0)
                usleep(1000);
        ck_assert_int_eq(progress_culprit(world_progress(e.world), 4), victim);
        kill(world_pid(e.world, victim), SIGKILL);
        pthread_join(thread, NULL);
        ck_assert_int_eq(e.status, STATUS_UNAVAILABLE);
        char name[24];
        snprintf(name, sizeof(name), "rank %d", victim);
        // By itself, or by a peer that has lost it.
        ck_assert_msg(strstr(e.error.text, name), "%s instead of %s", e.error.text, name);
        world_destroy(e.world);
    }
}
END_TEST

// One session of a pool of two. The test acts as its peer.
struct half_world {
    struct session session;
    struct transport *transport;
    struct progress progress;
    int peer;
    struct cp_case c;
};

static void half_world_init(struct half_world *h)
{
    int pair[2];
    struct error error;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(transport_socket_create(0, 2, (int[]){-1, pair[0]}, &h->transport, &error),
                     STATUS_OK);
    ck_assert_int_eq(
        session_init(&h->session, &engine_cpu, NULL, h->transport, &h->progress, &error),
        STATUS_OK);
    h->peer = pair[1];
    model_case(&h->c, 0, 2, DTYPE_BF16);
}

static void half_world_fini(struct half_world *h)
{
    session_fini(&h->session);
    h->transport->ops->destroy(h->transport);
}

static uint64_t digest_run(struct session *s, const struct cp_case *c, uint64_t job)
{
    struct error error = {0};
    struct rank_report report;
    ck_assert_int_eq(session_run(s, c, job, NULL, &report, &error), STATUS_OK);
    ck_assert(report.pass);
    ck_assert_double_gt(report.flops, 0);
    return report.digest;
}

// The plan of a case serves its repeats, and no other case.
START_TEST(a_repeat_uses_the_stored_plan)
{
    struct session s;
    struct transport *transport;
    struct progress progress = {0};
    struct error error;
    struct cp_case c, other;
    model_case(&c, 0, 1, DTYPE_BF16);
    other = c;
    other.seed++;
    ck_assert_int_eq(transport_socket_create(0, 1, (int[]){-1}, &transport, &error), STATUS_OK);
    ck_assert_int_eq(session_init(&s, &engine_cpu, NULL, transport, &progress, &error), STATUS_OK);
    uint64_t first = digest_run(&s, &c, 1);
    const struct plan *plan = s.kept.plan;
    ck_assert_ptr_nonnull(plan);
    ck_assert_uint_eq(digest_run(&s, &c, 2), first);
    ck_assert_ptr_eq(s.kept.plan, plan);
    ck_assert_uint_ne(digest_run(&s, &other, 3), first);
    ck_assert_uint_eq(s.kept.plan->c.seed, other.seed);
    ck_assert_uint_eq(digest_run(&s, &c, 4), first);
    session_fini(&s);
    transport->ops->destroy(transport);
}
END_TEST

START_TEST(a_lost_peer_is_not_an_own_failure)
{
    struct half_world h;
    struct error error = {0};
    struct rank_report report;
    struct rank_failure failure;
    half_world_init(&h);
    close(h.peer);
    ck_assert_int_eq(session_run(&h.session, &h.c, 5, NULL, &report, &error), STATUS_UNAVAILABLE);
    session_failure(&h.session, &error, &failure);
    ck_assert_int_eq(failure.kind, FAILURE_PEER_LOST);
    ck_assert_int_eq(failure.peer, 1);
    ck_assert_int_eq(failure.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(failure.phase, REPORT_FORWARD);
    ck_assert_str_eq(failure.text, error.text);
    // Ranks that are out of step refuse every case.
    ck_assert_int_eq(session_run(&h.session, &h.c, 6, NULL, &report, &error),
                     STATUS_FAILED_PRECONDITION);
    half_world_fini(&h);
}
END_TEST

START_TEST(a_peer_of_another_schedule_is_a_failure)
{
    struct half_world h;
    struct error error = {0};
    struct rank_report report;
    struct rank_failure failure;
    uint64_t header[2] = {UINT64_C(4) << 24 | REPORT_FORWARD << 16, 64};
    half_world_init(&h);
    ck_assert_int_eq(write(h.peer, header, sizeof(header)), sizeof(header));
    ck_assert_int_eq(session_run(&h.session, &h.c, 5, NULL, &report, &error), STATUS_INTERNAL);
    session_failure(&h.session, &error, &failure);
    ck_assert_int_eq(failure.kind, FAILURE_OWN);
    ck_assert_int_eq(failure.peer, -1);
    close(h.peer);
    half_world_fini(&h);
}
END_TEST

START_TEST(a_case_that_one_rank_lacks_memory_for_is_refused_by_all)
{
    struct cp_case c;
    struct error error;
    world_engine(&engine_lean);
    struct world *w = world_create(3);
    model_case(&c, 0, 3, DTYPE_BF16);
    // A batch of 5 runs after all ranks have freed what they hold. The reports do not mention it.
    c.batch = 5;
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
    ck_assert(world_passed(reports, 3));
    ck_assert_int_eq(reports[1].refusal.status, STATUS_OK);
    ck_assert_str_eq(reports[1].refusal.text, "");
    c.batch = 3;
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
        ck_assert_int_eq(reports[0].refusal.status, STATUS_ABORTED);
        ck_assert_int_eq(reports[1].refusal.status, STATUS_RESOURCE_EXHAUSTED);
        ck_assert_str_eq(reports[1].refusal.text, "three are too many");
        ck_assert_int_eq(reports[2].refusal.status, STATUS_ABORTED);
    }
    // The ranks are in step: the next case runs.
    c.batch = 2;
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
    ck_assert_int_eq(reports[1].refusal.status, STATUS_OK);
    ck_assert(world_passed(reports, 3));
    // A fault is not a refusal.
    c.batch = 4;
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_INTERNAL);
    world_destroy(w);
}
END_TEST

START_TEST(a_graph_is_refused_without_support)
{
    struct cp_case c;
    struct error error;
    struct world *w = world_create(2);
    model_case(&c, 0, 2, DTYPE_BF16);
    c.graph = true;
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
        for (int rank = 0; rank < 2; rank++) {
            ck_assert_int_eq(reports[rank].refusal.status, STATUS_UNIMPLEMENTED);
            ck_assert_str_eq(reports[rank].refusal.text,
                             "graph is true, and this backend is cpu, which has no graphs; "
                             "accepted is false there");
        }
    }
    c.graph = false;
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
    ck_assert(world_passed(reports, 2));
    world_destroy(w);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rank");
    TCase *verdicts = tcase_create("verdicts");
    tcase_set_timeout(verdicts, 60);
    tcase_add_loop_test(verdicts, known_models_pass, 0, MODELS * COMMS);
    tcase_add_loop_test(verdicts, any_softmax_passes, 0, COMMS);
    tcase_add_loop_test(verdicts, any_bias_passes, 0, COMMS);
    tcase_add_loop_test(verdicts, lengths_that_have_failed_elsewhere_pass, 0, COMMS);
    tcase_add_loop_test(verdicts, any_number_of_heads_can_be_dealt, 0, HEAD_COUNTS);
    tcase_add_test(verdicts, the_work_is_divided);
    suite_add_tcase(s, verdicts);
    TCase *bits = tcase_create("bits");
    tcase_set_timeout(bits, 60);
    tcase_add_loop_test(bits, cases_do_not_affect_later_ones, 0, COMMS);
    suite_add_tcase(s, bits);
    TCase *failures = tcase_create("failures");
    tcase_set_timeout(failures, 60);
    tcase_add_test(failures, a_case_of_another_world_size_is_refused);
    tcase_add_loop_test(failures, the_rank_that_delays_the_others_is_found, 0, 2);
    tcase_add_test(failures, a_case_that_one_rank_lacks_memory_for_is_refused_by_all);
    tcase_add_test(failures, a_graph_is_refused_without_support);
    tcase_add_test(failures, a_lost_peer_is_not_an_own_failure);
    tcase_add_test(failures, a_repeat_uses_the_stored_plan);
    tcase_add_test(failures, a_peer_of_another_schedule_is_a_failure);
    suite_add_tcase(s, failures);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
