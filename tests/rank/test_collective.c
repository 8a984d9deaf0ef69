// SPDX-License-Identifier: Apache-2.0
// Collectives in one process: every plan is proven free of races and deadlocks, executed for all
// ranks, and judged; what is done wrong on purpose is noticed.
#include "tests/support/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/collective.h"
#include "kernels/backend.h"
#include "plan/plan.h"
#include "rank/operations.h"

#define BUFFERS_MAX 8

struct scene {
    struct collective c;
    struct plan *plans[WORLD_SIZE_MAX];
    char *memory[WORLD_SIZE_MAX][BUFFERS_MAX];
    void *buffers[WORLD_SIZE_MAX][BUFFERS_MAX];
    char *send[WORLD_SIZE_MAX], *receive[WORLD_SIZE_MAX];
    int twice; // a rank that reduces everything twice, or -1
};

static struct error error;

static struct collective usual(void)
{
    struct collective c;
    memset(&c, 0, sizeof(c));
    job_kind_collective.init(&c);
    c.count = 37;
    return c;
}

static bool is_possible(const struct collective *c)
{
    return job_kind_collective.check(c, &error) == STATUS_OK;
}

static const char *text_of(const struct collective *c)
{
    static char text[256];
    struct job_spec spec = {.kind = &job_kind_collective};
    memcpy(spec.bytes, c, sizeof(*c));
    job_spec_describe(&spec, text, sizeof(text));
    return text;
}

// ---- memory ----

static void memory_take(struct scene *s, int rank)
{
    const struct plan *plan = s->plans[rank];
    struct collective_shared shared = collective_shared(&s->c, rank);
    int element = collective_element_bytes(s->c.dtype);
    ck_assert_int_le(plan->buffer_count, BUFFERS_MAX);
    for (int i = 0; i < plan->buffer_count; i++) {
        // Of its size, so that a sanitizer sees what goes beyond.
        char *data = malloc((size_t)plan->buffers[i].bytes);
        memset(data, 0xff, (size_t)plan->buffers[i].bytes);
        s->memory[rank][i] = data;
        s->buffers[rank][i] = data;
        if (plan->buffers[i].role == BUFFER_SEND)
            s->send[rank] = data;
        if (plan->buffers[i].role == BUFFER_RECEIVE)
            s->receive[rank] = data;
        if (plan->buffers[i].role != BUFFER_SHARED)
            continue;
        if (collective_send_count(&s->c, rank) > 0)
            s->send[rank] = data + shared.send * element;
        if (collective_receive_count(&s->c, rank) > 0)
            s->receive[rank] = data + shared.receive * element;
    }
    if (s->send[rank])
        collective_fill(&s->c, rank, s->send[rank]);
}

static struct scene *scene_create(const struct collective *c)
{
    struct scene *s = calloc(1, sizeof(*s));
    s->c = *c;
    s->twice = -1;
    for (int rank = 0; rank < c->world_size; rank++) {
        ck_assert_int_eq(collective_plan(c, rank, &s->plans[rank], &error), STATUS_OK);
        memory_take(s, rank);
    }
    return s;
}

static void scene_destroy(struct scene *s)
{
    for (int rank = 0; rank < s->c.world_size; rank++) {
        for (int i = 0; i < BUFFERS_MAX; i++)
            free(s->memory[rank][i]);
        plan_destroy(s->plans[rank]);
    }
    free(s);
}

// ---- execution: all ranks up to their next exchange, then that one ----

static void compute(struct scene *s, int rank, int *at)
{
    const struct plan *plan = s->plans[rank];
    const struct operations operations = {
        .plan = plan, .buffers = s->buffers[rank], .ops = &backend_cpu};
    for (; *at < plan->op_count && plan->ops[*at].kind != OP_EXCHANGE; ++*at) {
        int times = rank == s->twice && plan->ops[*at].kind == OP_REDUCE ? 2 : 1;
        for (int i = 0; i < times; i++)
            ck_assert_int_eq(operations_run(&operations, &plan->ops[*at], &error), STATUS_OK);
    }
}

// The k-th region of an exchange that goes to (comes from) a peer and is not empty; NULL: none.
static const struct region *region_find(const struct plan *plan, const struct op *op, int peer,
                                        bool send, int k)
{
    for (int i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        const struct region *r = send ? &t->send : &t->receive;
        if (t->peer == peer && r->bytes > 0 && k-- == 0)
            return r;
    }
    return NULL;
}

static void exchange(struct scene *s, const int *at)
{
    int size = s->c.world_size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int k = 0;; k++) {
                const struct op *out = &s->plans[from]->ops[at[from]],
                                *in = &s->plans[to]->ops[at[to]];
                const struct region *send = region_find(s->plans[from], out, to, true, k);
                const struct region *receive = region_find(s->plans[to], in, from, false, k);
                if (!send || !receive)
                    break;
                memcpy((char *)s->buffers[to][receive->buffer] + receive->offset,
                       (char *)s->buffers[from][send->buffer] + send->offset,
                       (size_t)(send->bytes < receive->bytes ? send->bytes : receive->bytes));
            }
}

static void execute(struct scene *s)
{
    int at[WORLD_SIZE_MAX] = {0};
    for (bool more = true; more;) {
        for (int rank = 0; rank < s->c.world_size; rank++)
            compute(s, rank, &at[rank]);
        more = at[0] < s->plans[0]->op_count;
        if (more)
            exchange(s, at);
        for (int rank = 0; rank < s->c.world_size; rank++)
            at[rank]++;
    }
}

// Rules that are broken, on all ranks together.
static int broken(const struct scene *s)
{
    int rules = 0;
    for (int rank = 0; rank < s->c.world_size; rank++) {
        struct figures receive = {0}, send = {0};
        collective_judge_receive(&s->c, rank, s->receive[rank], &receive);
        collective_judge_send(&s->c, rank, s->send[rank], s->c.in_place ? s->receive[rank] : NULL,
                              &send);
        rules |= receive.broken | send.broken;
    }
    return rules;
}

static void assert_right(const struct collective *c)
{
    struct scene *s = scene_create(c);
    int64_t allowed;
    ck_assert_msg(plan_check(s->plans, c->world_size, &error) == STATUS_OK, "%s: %s", text_of(c),
                  error.text);
    ck_assert_int_eq(job_kind_collective.memory(c, &allowed, &error), STATUS_OK);
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t bytes = 0;
        for (int i = 0; i < s->plans[rank]->buffer_count; i++)
            bytes += s->plans[rank]->buffers[i].bytes;
        ck_assert_msg(bytes + 4096 <= allowed, "%s takes %lld bytes of %lld", text_of(c),
                      (long long)bytes, (long long)allowed);
    }
    execute(s);
    ck_assert_msg(broken(s) == 0, "%s: rules 0x%x", text_of(c), (unsigned)broken(s));
    scene_destroy(s);
}

// ---- all are right ----

START_TEST(every_operation_and_algorithm_is_right)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 8, 9};
    static const int counts[] = {0, 1, 5, 37, 100};
    struct collective c = usual();
    int made = 0;
    c.operation = (enum collective_operation)_i;
    for (int a = ALGORITHM_AUTO; a < ALGORITHM_NCCL; a++)
        for (int w = 0; w < 7; w++)
            for (int n = 0; n < 5; n++)
                for (int i = 0; i < 2 * ELEMENTS; i++) {
                    c.algorithm = (enum collective_algorithm)a;
                    c.world_size = worlds[w];
                    c.count = counts[n];
                    c.in_place = i % 2;
                    c.dtype = (enum collective_element)(1 + i / 2 % (ELEMENTS - 1));
                    c.reduction = (enum collective_reduction)(1 + (i + n + w) % (REDUCTIONS - 1));
                    c.root = (n + i) % worlds[w];
                    if (!is_possible(&c))
                        continue;
                    assert_right(&c);
                    made++;
                }
    ck_assert_int_gt(made, 300);
}
END_TEST

static uint64_t random_state;

static int random_below(int bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)bound);
}

START_TEST(random_ones_are_right)
{
    random_state = 77;
    for (int made = 0; made < 400;) {
        struct collective c = usual();
        c.operation = (enum collective_operation)(1 + random_below(COLLECTIVE_OPERATIONS - 1));
        c.reduction = (enum collective_reduction)(1 + random_below(REDUCTIONS - 1));
        c.dtype = (enum collective_element)(1 + random_below(ELEMENTS - 1));
        c.algorithm = (enum collective_algorithm)(1 + random_below(ALGORITHM_NCCL - 1));
        c.world_size = 1 + random_below(random_below(10) ? 8 : WORLD_SIZE_MAX);
        c.count = random_below(random_below(4) ? 100 : 3000);
        c.root = random_below(c.world_size);
        c.in_place = random_below(2);
        c.seed = (uint64_t)random_below(1 << 30);
        if (!is_possible(&c))
            continue;
        assert_right(&c);
        made++;
    }
}
END_TEST

// ---- what is done wrong shows ----

enum wrong {
    WRONG_REDUCTION_LOST,
    WRONG_SHIFTED,
    WRONG_DIVISOR,
    WRONG_RANK_TWICE,
    WRONG_EXCHANGE_LOST,
    WRONG_SEND_WRITTEN,
    WRONG_LAST_ELEMENT,
    WRONGS,
};

static bool receives(const struct plan *plan, const struct op *op)
{
    bool any = false;
    for (int i = 0; i < op->transfer_count; i++)
        any = any || plan->transfers[op->transfer_first + i].receive.bytes > 0;
    return any;
}

// The last of a kind, of exchanges one that brings something.
static struct op *op_find(struct plan *plan, enum op_kind kind)
{
    for (int i = plan->op_count - 1; i >= 0; i--)
        if (plan->ops[i].kind == kind && (kind != OP_EXCHANGE || receives(plan, &plan->ops[i])))
            return &plan->ops[i];
    return NULL;
}

// A region that something of a transfer comes to.
static struct region *receive_find(struct plan *plan)
{
    for (int i = 0; i < plan->transfer_count; i++)
        if (plan->transfers[i].receive.bytes > 0 && plan->transfers[i].peer != plan->rank)
            return &plan->transfers[i].receive;
    return NULL;
}

// Changes the plan of a rank; false where there is nothing to change.
static bool plan_spoil(struct scene *s, int rank, enum wrong wrong)
{
    struct plan *plan = s->plans[rank];
    int element = collective_element_bytes(s->c.dtype);
    struct op *op = op_find(plan, wrong == WRONG_DIVISOR         ? OP_DIVIDE
                                  : wrong == WRONG_EXCHANGE_LOST ? OP_EXCHANGE
                                                                 : OP_REDUCE);
    struct region *region = receive_find(plan);
    switch (wrong) {
    case WRONG_REDUCTION_LOST:
        if (op)
            op->operand[UNARY_DESTINATION].bytes = 0;
        return op != NULL;
    case WRONG_SHIFTED: // what comes begins one element too late, and its last is lost
        if (!region || region->bytes < 3 * element)
            return false;
        region->offset += element;
        region->bytes -= element;
        return true;
    case WRONG_DIVISOR:
        if (op)
            op->value += 1;
        return op != NULL;
    case WRONG_RANK_TWICE:
        s->twice = rank;
        return op != NULL;
    case WRONG_EXCHANGE_LOST:
        if (op)
            for (int i = 0; i < op->transfer_count; i++)
                plan->transfers[op->transfer_first + i].receive.bytes = 0;
        return op != NULL;
    default:
        return false;
    }
}

static bool memory_spoil(struct scene *s, int rank, enum wrong wrong)
{
    int64_t bytes = collective_element_bytes(s->c.dtype);
    if (wrong == WRONG_SEND_WRITTEN && s->send[rank] && !s->c.in_place) {
        s->send[rank][0] ^= 1;
        return true;
    }
    if (wrong == WRONG_LAST_ELEMENT && s->receive[rank]) {
        char *last = s->receive[rank] + (collective_receive_count(&s->c, rank) - 1) * bytes;
        last[bytes - 1] ^= 0x40;
        return true;
    }
    return false;
}

START_TEST(what_is_done_wrong_is_noticed)
{
    int noticed[WRONGS] = {0};
    random_state = 5;
    for (int tries = 0; tries < 1500; tries++) {
        struct collective c = usual();
        c.operation = (enum collective_operation)(1 + random_below(COLLECTIVE_OPERATIONS - 1));
        c.reduction = (enum collective_reduction)(1 + random_below(REDUCTIONS - 1));
        c.dtype = (enum collective_element)(1 + random_below(ELEMENTS - 1));
        c.algorithm = (enum collective_algorithm)(1 + random_below(ALGORITHM_NCCL - 1));
        c.world_size = 2 + random_below(6);
        c.count = 200 + random_below(200);
        c.root = random_below(c.world_size);
        c.in_place = random_below(2);
        // What is added twice leaves minima and maxima as they are.
        bool idempotent = c.reduction == REDUCTION_MIN || c.reduction == REDUCTION_MAX;
        enum wrong wrong = (enum wrong)random_below(WRONGS);
        int rank = random_below(c.world_size);
        if (!is_possible(&c) ||
            (wrong == WRONG_RANK_TWICE && (idempotent || c.operation != COLLECTIVE_REDUCE_SCATTER)))
            continue;
        struct scene *s = scene_create(&c);
        bool spoiled = plan_spoil(s, rank, wrong);
        execute(s);
        spoiled = spoiled || memory_spoil(s, rank, wrong);
        if (spoiled)
            ck_assert_msg(broken(s) != 0, "error %d on rank %d of %s", (int)wrong, rank,
                          text_of(&c));
        noticed[wrong] += spoiled;
        scene_destroy(s);
    }
    for (int wrong = 0; wrong < WRONGS; wrong++)
        ck_assert_msg(noticed[wrong] >= 5, "error %d was made %d times", wrong, noticed[wrong]);
}
END_TEST

// A wait, or the counterpart of a message, that is missing.
START_TEST(plans_that_are_wrong_are_refused)
{
    int waits = 0;
    for (int a = ALGORITHM_RING; a < ALGORITHM_NCCL; a++) {
        struct collective c = usual();
        c.algorithm = (enum collective_algorithm)a;
        c.world_size = 4;
        struct scene *s = scene_create(&c);
        for (int i = 0; i < s->plans[1]->op_count; i++) {
            struct op *op = &s->plans[1]->ops[i];
            int count = op->wait_count;
            if (count == 0)
                continue;
            op->wait_count = 0;
            ck_assert_int_eq(plan_check(s->plans, 4, &error), STATUS_INTERNAL);
            op->wait_count = count;
            waits++;
        }
        receive_find(s->plans[2])->bytes -= 4;
        ck_assert_int_eq(plan_check(s->plans, 4, &error), STATUS_INTERNAL);
        scene_destroy(s);
    }
    ck_assert_int_gt(waits, 10);
}
END_TEST

// ---- the judge's own limits ----

// One rounding more than there may be, and one rank less.
START_TEST(a_rank_that_is_missing_shows_at_any_size)
{
    static const int worlds[] = {2, 8, 33, 64};
    for (int w = 0; w < 4; w++)
        for (int element = ELEMENT_FP32; element <= ELEMENT_BF16; element++)
            for (int way = 0; way < 3; way++) {
                struct collective c = usual();
                c.world_size = worlds[w];
                c.dtype = (enum collective_element)element;
                c.count = 512;
                c.algorithm = ALGORITHM_DIRECT;
                c.reduction = way == 0 ? REDUCTION_SUM : way == 1 ? REDUCTION_PROD : REDUCTION_AVG;
                struct scene *s = scene_create(&c);
                plan_spoil(s, 1, WRONG_REDUCTION_LOST);
                execute(s);
                ck_assert_msg(broken(s) != 0, "%s", text_of(&c));
                scene_destroy(s);
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective");
    TCase *tcase = tcase_create("collective");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_operation_and_algorithm_is_right, COLLECTIVE_ALL_REDUCE,
                        COLLECTIVE_OPERATIONS);
    tcase_add_test(tcase, random_ones_are_right);
    tcase_add_test(tcase, what_is_done_wrong_is_noticed);
    tcase_add_test(tcase, plans_that_are_wrong_are_refused);
    tcase_add_test(tcase, a_rank_that_is_missing_shows_at_any_size);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
