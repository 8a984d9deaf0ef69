// SPDX-License-Identifier: Apache-2.0
// The executor with operations and a transport that only record calls.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank/executor.h"
#include "tests/support/generate.h"

// ---- a plan made by hand ----

#define OPS_MAX     64
#define WAITS_MAX   512
#define BUFFER_SIZE 64

struct sketch {
    struct plan plan;
    struct op ops[OPS_MAX];
    int32_t waits[WAITS_MAX];
    struct transfer transfers[OPS_MAX];
};

// The plan of rank 0 of 2 of a small case.
static void sketch_init(struct sketch *s)
{
    memset(s, 0, sizeof(*s));
    case_init(&s->plan.c);
    s->plan.ops = s->ops;
    s->plan.waits = s->waits;
    s->plan.transfers = s->transfers;
}

static struct op *sketch_op(struct sketch *s, enum op_kind kind)
{
    struct op *op = &s->ops[s->plan.op_count];
    op->kind = kind;
    op->stream = kind == OP_EXCHANGE ? STREAM_COMM : STREAM_COMPUTE;
    op->phase = PHASE_FORWARD;
    op->step = s->plan.op_count++;
    op->wait_first = s->plan.wait_count;
    return op;
}

// Adds a compute operation. Its value is its index.
static void sketch_fill(struct sketch *s)
{
    int32_t index = s->plan.op_count;
    struct op *op = sketch_op(s, OP_FILL);
    op->value = (float)index;
    op->operand[UNARY_DESTINATION] = (struct region){.bytes = 4};
}

static void sketch_exchange(struct sketch *s)
{
    struct op *op = sketch_op(s, OP_EXCHANGE);
    op->transfer_first = s->plan.transfer_count;
    op->transfer_count = 1;
    s->transfers[s->plan.transfer_count++] = (struct transfer){
        .peer = 1, .send = {.offset = 8, .bytes = 8}, .receive = {.offset = 16, .bytes = 8}};
}

// The operation added last waits for `other`.
static void sketch_wait(struct sketch *s, int32_t other)
{
    s->waits[s->plan.wait_count++] = other;
    s->ops[s->plan.op_count - 1].wait_count++;
}

// ---- record of calls ----

struct event {
    char what; // 'R' run, 'S' start, 'D' done
    int op;
};

static struct {
    struct event events[4 * OPS_MAX];
    int count;
    int exchange;       // the running exchange, or -1
    int patience;       // calls of progress() before an exchange is done
    int looks;          // such calls so far
    int waits;          // calls with a timeout
    int run_after_wait; // operations that ran directly after a wait in vain
    bool waited_in_vain;
    bool poisoned; // the receive region was all ones at the start
    enum status fail_run, fail_progress;
    uint64_t tags[OPS_MAX];
} notes;

static void note(char what, int op)
{
    notes.events[notes.count++] = (struct event){what, op};
}

static void notes_fill(struct attention_backend *backend, float *destination, float value,
                       int64_t count)
{
    (void)backend;
    ck_assert_int_eq(count, 1);
    *destination = value;
    notes.run_after_wait += notes.waited_in_vain;
    note('R', (int)value);
}

static enum status notes_forward(struct attention_backend *backend,
                                 const struct attention_forward *args, struct error *error)
{
    (void)backend;
    (void)args;
    return error_set(error, notes.fail_run, "no attention today");
}

static const struct attention_kernels notes_kernels = {.forward = notes_forward};
static const struct backend_ops notes_ops = {.fill = notes_fill, .attention = &notes_kernels};

static enum status notes_start(struct transport *t, uint64_t tag, const struct message *messages,
                               int count, struct error *error)
{
    (void)t;
    (void)error;
    ck_assert_int_eq(count, 1);
    ck_assert_int_eq(messages[0].peer, 1);
    ck_assert_int_eq(notes.exchange, -1);
    notes.exchange = (int)(tag & 0xffff);
    notes.looks = 0;
    unsigned char ones[8];
    memset(ones, 0xff, sizeof(ones));
    notes.poisoned = memcmp(messages[0].receive, ones, sizeof(ones)) == 0;
    notes.tags[notes.exchange] = tag;
    note('S', notes.exchange);
    return STATUS_OK;
}

static enum status notes_progress(struct transport *t, int timeout_ms, int *done,
                                  struct error *error)
{
    (void)t;
    ck_assert_int_ge(notes.exchange, 0);
    if (notes.fail_progress)
        return error_set(error, notes.fail_progress, "no peer today");
    notes.waits += timeout_ms != 0;
    *done = ++notes.looks > notes.patience;
    notes.waited_in_vain = timeout_ms != 0 && !*done;
    if (*done) {
        note('D', notes.exchange);
        notes.exchange = -1;
    }
    return STATUS_OK;
}

static int notes_waiting_for(const struct transport *t)
{
    (void)t;
    return 1;
}

static const struct transport_ops notes_transport_ops = {
    .start = notes_start, .progress = notes_progress, .waiting_for = notes_waiting_for};

static struct progress progress_word;
static char memory[BUFFER_SIZE];

static enum status sketch_run(struct sketch *s, uint64_t explore_seed, int patience,
                              struct error *error)
{
    struct transport transport = {.ops = &notes_transport_ops, .world_size = 2};
    void *buffers[] = {memory};
    struct timings timings = {0};
    struct execution e = {.plan = &s->plan,
                          .buffers = buffers,
                          .ops = &notes_ops,
                          .transport = &transport,
                          .progress = &progress_word,
                          .job = 77};
    memset(&notes, 0, sizeof(notes));
    notes.exchange = -1;
    notes.patience = patience;
    s->plan.c.explore_seed = explore_seed;
    return executor_run(&e, &timings, error);
}

// Position of an event in the notes, or -1.
static int when(char what, int op)
{
    for (int i = 0; i < notes.count; i++)
        if (notes.events[i].what == what && notes.events[i].op == op)
            return i;
    return -1;
}

static int began(const struct sketch *s, int op)
{
    return when(s->ops[op].kind == OP_EXCHANGE ? 'S' : 'R', op);
}

static int ended(const struct sketch *s, int op)
{
    return when(s->ops[op].kind == OP_EXCHANGE ? 'D' : 'R', op);
}

static void assert_legal(const struct sketch *s)
{
    int events = 0;
    for (int32_t i = 0; i < s->plan.op_count; i++) {
        const struct op *op = &s->ops[i];
        events += op->kind == OP_EXCHANGE ? 2 : 1;
        ck_assert_int_ge(began(s, i), 0);
        ck_assert_int_ge(ended(s, i), began(s, i));
        for (int32_t j = 0; j < i; j++)
            if (s->ops[j].stream == op->stream)
                ck_assert_int_lt(ended(s, j), began(s, i));
        for (int32_t w = 0; w < op->wait_count; w++)
            ck_assert_int_lt(ended(s, s->waits[op->wait_first + w]), began(s, i));
    }
    ck_assert_int_eq(notes.count, events);
}

// ---- tests ----

static void sketch_random(struct sketch *s, uint64_t *state)
{
    sketch_init(s);
    int count = 1 + (int)generate_below(state, 30);
    for (int32_t i = 0; i < count; i++) {
        if (generate_below(state, 3) == 0)
            sketch_exchange(s);
        else
            sketch_fill(s);
        for (int32_t other = 0; other < i; other++)
            if (s->ops[other].stream != s->ops[i].stream && generate_below(state, 6) == 0)
                sketch_wait(s, other);
    }
}

START_TEST(every_order_is_legal)
{
    static struct sketch s;
    struct error error;
    uint64_t state = 1;
    for (int round = 0; round < 2000; round++) {
        sketch_random(&s, &state);
        uint64_t explore_seed = round % 4 ? generate_next(&state) : 0;
        int patience = (int)generate_below(&state, 4);
        ck_assert_int_eq(sketch_run(&s, explore_seed, patience, &error), STATUS_OK);
        assert_legal(&s);
        if (explore_seed == 0)
            ck_assert_int_eq(notes.run_after_wait, 0);
    }
}
END_TEST

// Two operations beside an exchange can be ordered in six ways.
START_TEST(every_legal_order_occurs)
{
    static struct sketch s;
    struct error error;
    static const char *const orders[] = {"SDRR", "SRDR", "SRRD", "RSDR", "RSRD", "RRSD"};
    int seen[6] = {0};
    sketch_init(&s);
    sketch_fill(&s);
    sketch_exchange(&s);
    sketch_fill(&s);
    for (uint64_t seed = 1; seed <= 300; seed++) {
        char order[5] = "";
        ck_assert_int_eq(sketch_run(&s, seed, 0, &error), STATUS_OK);
        ck_assert_int_eq(notes.count, 4);
        for (int i = 0; i < 4; i++)
            order[i] = notes.events[i].what;
        for (int i = 0; i < 6; i++)
            seen[i] += strcmp(order, orders[i]) == 0;
    }
    for (int i = 0; i < 6; i++)
        ck_assert_msg(seen[i] > 0, "%s never occurred", orders[i]);
}
END_TEST

START_TEST(a_seed_is_an_order)
{
    static struct sketch s;
    struct error error;
    uint64_t state = 5;
    sketch_random(&s, &state);
    struct event first[4 * OPS_MAX];
    ck_assert_int_eq(sketch_run(&s, 99, 1, &error), STATUS_OK);
    memcpy(first, notes.events, sizeof(first));
    ck_assert_int_eq(sketch_run(&s, 99, 1, &error), STATUS_OK);
    for (int i = 0; i < notes.count; i++) {
        ck_assert_int_eq(notes.events[i].what, first[i].what);
        ck_assert_int_eq(notes.events[i].op, first[i].op);
    }
}
END_TEST

// In plan order an exchange starts before the computation that it overlaps, and the rank waits for
// it only without other work.
START_TEST(exchanges_hide_behind_computing)
{
    static struct sketch s;
    struct error error;
    sketch_init(&s);
    sketch_fill(&s);     // 0
    sketch_exchange(&s); // 1
    sketch_fill(&s);     // 2
    sketch_fill(&s);     // 3
    sketch_wait(&s, 1);
    ck_assert_int_eq(sketch_run(&s, 0, 1, &error), STATUS_OK);
    ck_assert_int_eq(when('S', 1), 0);
    ck_assert_int_eq(notes.waits, 0);
    ck_assert_int_lt(when('R', 0), when('D', 1));
    ck_assert_int_lt(when('D', 1), when('R', 3));
    // Slower than the computation: the rank has to wait.
    ck_assert_int_eq(sketch_run(&s, 0, 9, &error), STATUS_OK);
    ck_assert_int_gt(notes.waits, 0);
    ck_assert_int_lt(when('R', 2), when('D', 1));
}
END_TEST

START_TEST(exchanges_are_named_and_poisoned)
{
    static struct sketch s;
    struct error error;
    sketch_init(&s);
    sketch_fill(&s);
    sketch_exchange(&s);
    memset(memory, 0, sizeof(memory));
    ck_assert_int_eq(sketch_run(&s, 0, 0, &error), STATUS_OK);
    ck_assert(!notes.poisoned);
    ck_assert_uint_eq(notes.tags[1], UINT64_C(77) << 24 | REPORT_FORWARD << 16 | 1);
    ck_assert_int_eq(sketch_run(&s, 3, 0, &error), STATUS_OK);
    ck_assert(notes.poisoned);
}
END_TEST

START_TEST(the_progress_word_tells_where_it_stands)
{
    static struct sketch s;
    struct error error;
    sketch_init(&s);
    sketch_fill(&s);
    s.ops[0].phase = PHASE_BACKWARD;
    s.ops[0].step = 12;
    ck_assert_int_eq(sketch_run(&s, 0, 0, &error), STATUS_OK);
    struct progress_view view = progress_load(&progress_word);
    ck_assert_uint_eq(view.job, 77);
    ck_assert_int_eq(view.phase, REPORT_BACKWARD);
    ck_assert_int_eq(view.step, 12);
    ck_assert_int_eq(view.waiting_for, -1);

    sketch_init(&s);
    sketch_exchange(&s);
    ck_assert_int_eq(sketch_run(&s, 0, 3, &error), STATUS_OK);
    view = progress_load(&progress_word);
    ck_assert_int_eq(view.phase, REPORT_FORWARD);
    ck_assert_int_eq(view.waiting_for, 1);
}
END_TEST

START_TEST(a_stuck_plan_is_an_error)
{
    static struct sketch s;
    struct error error;
    sketch_init(&s);
    sketch_fill(&s);
    sketch_wait(&s, 1);
    sketch_exchange(&s);
    sketch_wait(&s, 0);
    ck_assert_int_eq(sketch_run(&s, 0, 0, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text,
                     "the plan of rank 0 is stuck: neither operation 0 nor 1 can start");
}
END_TEST

START_TEST(failures_are_passed_on)
{
    static struct sketch s;
    struct error error;
    struct transport transport = {.ops = &notes_transport_ops, .world_size = 2};
    void *buffers[] = {memory};
    struct timings timings = {0};
    struct execution e = {.plan = &s.plan,
                          .buffers = buffers,
                          .ops = &notes_ops,
                          .transport = &transport,
                          .progress = &progress_word,
                          .job = 1};
    sketch_init(&s);
    sketch_op(&s, OP_ATTEND_FORWARD);
    memset(&notes, 0, sizeof(notes));
    notes.exchange = -1;
    notes.fail_run = STATUS_RESOURCE_EXHAUSTED;
    ck_assert_int_eq(executor_run(&e, &timings, &error), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(error.text, "no attention today");
    sketch_init(&s);
    sketch_exchange(&s);
    notes.fail_progress = STATUS_UNAVAILABLE;
    ck_assert_int_eq(executor_run(&e, &timings, &error), STATUS_UNAVAILABLE);
    ck_assert_str_eq(error.text, "no peer today");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("executor");
    TCase *orders = tcase_create("orders");
    tcase_add_test(orders, every_order_is_legal);
    tcase_add_test(orders, every_legal_order_occurs);
    tcase_add_test(orders, a_seed_is_an_order);
    tcase_add_test(orders, exchanges_hide_behind_computing);
    suite_add_tcase(s, orders);
    TCase *surroundings = tcase_create("surroundings");
    tcase_add_test(surroundings, exchanges_are_named_and_poisoned);
    tcase_add_test(surroundings, the_progress_word_tells_where_it_stands);
    tcase_add_test(surroundings, a_stuck_plan_is_an_error);
    tcase_add_test(surroundings, failures_are_passed_on);
    suite_add_tcase(s, surroundings);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
