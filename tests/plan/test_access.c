// SPDX-License-Identifier: Apache-2.0
// The accesses of operations in plans of random cases. The table for waits is compared with a
// second definition (tests/plan/touches.h). The second definition is compared with the actual
// accesses of the CPU's operations.
#include <stdlib.h>
#include <string.h>

#include "plan/collective.h"
#include "rank/operations.h"
#include "tests/plan/touches.h"
#include "tests/support/generate.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"

#define PLANS   2000
#define RUNS    300
#define BUFFERS 128

// An assertion for inner loops. Each of Check's own assertions writes to a file.
#define EXPECT(condition, op, i)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s, operand %d: %s", op_kind_name((op)->kind), (i), #condition);         \
    } while (0)

// ---- the table ----

static void expect_operand(const struct op *op, int i, const struct touch *touch)
{
    enum access access = op_access(op->kind, i);
    EXPECT((access & ACCESS_READ) == (touch->reads ? ACCESS_READ : 0), op, i);
    EXPECT((access & ACCESS_WRITE) == (touch->writes ? ACCESS_WRITE : 0), op, i);
    EXPECT(region_total(&op->operand[i]) == touch->bytes, op, i);
}

static bool of_collectives(int kind)
{
    return kind == OP_REDUCE || kind == OP_DIVIDE;
}

static bool of_layers(int kind)
{
    return kind >= OP_PRODUCT && kind <= OP_SUM_PARTS;
}

START_TEST(the_table_agrees_with_the_comments)
{
    int seen[OP_KINDS] = {0};
    for (uint64_t seed = 0; seed < PLANS; seed++) {
        struct cp_case c;
        struct plans p;
        struct touch touch[OPERANDS_MAX];
        plans_any_case(seed, 40, &c);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++)
            for (int32_t n = 0; n < p.plans[rank]->op_count; n++) {
                const struct op *op = &p.plans[rank]->ops[n];
                seen[op->kind]++;
                touches_find(p.plans[rank], op, touch);
                for (int i = 0; i < OPERANDS_MAX; i++)
                    expect_operand(op, i, &touch[i]);
            }
        plans_destroy(&p);
    }
    for (int kind = 0; kind < OP_KINDS; kind++)
        ck_assert_int_gt(seen[kind], of_collectives(kind) || of_layers(kind) ? -1 : 100);
}
END_TEST

START_TEST(the_table_agrees_for_collectives)
{
    int seen[OP_KINDS] = {0};
    for (int i = 0; i < COLLECTIVE_OPERATIONS * ALGORITHMS * REDUCTIONS; i++) {
        struct collective c = {.world_size = 4,
                               .operation = COLLECTIVE_ALL_REDUCE,
                               .dtype = ELEMENT_FP32,
                               .algorithm = (enum collective_algorithm)(1 + i % (ALGORITHMS - 1)),
                               .reduction = (enum collective_reduction)(1 + i % (REDUCTIONS - 1)),
                               .count = 1 + i};
        struct plan *plan;
        struct touch touch[OPERANDS_MAX];
        struct error error;
        ck_assert_int_eq(collective_plan(&c, i % c.world_size, &plan, &error), STATUS_OK);
        for (int32_t n = 0; n < plan->op_count; n++) {
            const struct op *op = &plan->ops[n];
            seen[op->kind]++;
            if (!of_collectives((int)op->kind))
                continue;
            touches_find(plan, op, touch);
            for (int operand = 0; operand < OPERANDS_MAX; operand++)
                expect_operand(op, operand, &touch[operand]);
        }
        plan_destroy(plan);
    }
    ck_assert_int_gt(seen[OP_REDUCE], 100);
    ck_assert_int_gt(seen[OP_DIVIDE], 10);
}
END_TEST

START_TEST(the_table_agrees_for_linear_layers)
{
    int seen[OP_KINDS] = {0};
    for (int i = 0; i < 200; i++) {
        struct linear l = {0};
        struct plan *plan;
        struct touch touch[OPERANDS_MAX];
        struct error error;
        job_kind_linear.init(&l);
        l.world_size = 1 + i % 4;
        l.layer = (enum linear_layer)(1 + i % 3);
        l.activation = (enum activation)(1 + i / 3 % 3);
        l.tokens = 1 + i;
        l.hidden = l.in_features = 9 + i;
        l.bias = i % 5 > 0;
        l.sequence_parallel = i % 7 > 3;
        ck_assert_int_eq(linear_plan(&l, i % l.world_size, &plan, &error), STATUS_OK);
        for (int32_t n = 0; n < plan->op_count; n++) {
            const struct op *op = &plan->ops[n];
            seen[op->kind]++;
            if (op->kind == OP_EXCHANGE || op->kind == OP_COPY)
                continue;
            touches_find(plan, op, touch);
            for (int operand = 0; operand < OPERANDS_MAX; operand++)
                expect_operand(op, operand, &touch[operand]);
        }
        plan_destroy(plan);
    }
    for (int kind = OP_PRODUCT; kind <= OP_SUM_PARTS; kind++)
        ck_assert_int_gt(seen[kind], 20);
}
END_TEST

// ---- memory ----

// Two copies of all buffers of a plan: before an operation and after it.
struct memory {
    const struct plan *plan;
    struct own_provider own;
    struct attends *attends;
    int64_t bytes, first[BUFFERS]; // by buffer
    char *before, *after;
};

static void memory_init(struct memory *m, const struct plan *plan,
                        struct attention_backend *backend)
{
    struct error error;
    *m = (struct memory){.plan = plan};
    own_provider_init(&m->own, &backend_cpu, backend);
    ck_assert_int_eq(attends_create(plan, &m->own, NULL, false, &m->attends, &error), STATUS_OK);
    ck_assert_int_le(plan->buffer_count, BUFFERS);
    for (int32_t i = 0; i < plan->buffer_count; i++) {
        m->first[i] = m->bytes;
        m->bytes += plan->buffers[i].bytes;
    }
    m->before = calloc(1, (size_t)m->bytes + 1);
    m->after = calloc(1, (size_t)m->bytes + 1);
    ck_assert(m->before && m->after);
}

static void memory_fini(struct memory *m)
{
    attends_destroy(m->attends);
    free(m->before);
    free(m->after);
}

// Fills a piece of memory with random fp32 numbers.
static void draw(float *numbers, int64_t bytes, uint64_t *random)
{
    for (int64_t i = 0; i < bytes / 4; i++)
        numbers[i] = (float)generate_below(random, 2001) / 1000 - 1;
}

static void draw_region(const struct memory *m, const struct region *r, uint64_t *random)
{
    char *buffer = m->before + m->first[r->buffer];
    for (int64_t i = 0; i < region_pieces(r); i++)
        draw((float *)(void *)(buffer + region_piece(r, i)), r->bytes, random);
}

static void mark_region(const struct memory *m, const struct region *r, char *marks)
{
    char *buffer = marks + m->first[r->buffer];
    for (int64_t i = 0; i < region_pieces(r); i++)
        memset(buffer + region_piece(r, i), 1, (size_t)r->bytes);
}

static void run(const struct memory *m, const struct op *op, struct attention_backend *backend)
{
    void *buffers[BUFFERS];
    struct error error = {.text = ""};
    memcpy(m->after, m->before, (size_t)m->bytes);
    for (int32_t i = 0; i < m->plan->buffer_count; i++)
        buffers[i] = m->after + m->first[i];
    const struct operations x = {.plan = m->plan,
                                 .buffers = buffers,
                                 .ops = &backend_cpu,
                                 .backend = backend,
                                 .attends = m->attends};
    ck_assert_msg(operations_run(&x, op, &error) == STATUS_OK, "%s", error.text);
}

// ---- what operations do ----

// [kind][operand]: an operation has written this operand; this operand has changed a result.
static bool written[OP_KINDS][OPERANDS_MAX], read_from[OP_KINDS][OPERANDS_MAX];

static bool region_differs(const struct memory *m, const char *a, const char *b,
                           const struct region *r)
{
    for (int64_t i = 0; i < region_pieces(r); i++) {
        int64_t place = m->first[r->buffer] + region_piece(r, i);
        if (memcmp(a + place, b + place, (size_t)r->bytes) != 0)
            return true;
    }
    return false;
}

static bool writes_differ(const struct memory *m, const struct op *op, const struct touch *touch,
                          const char *a, const char *b)
{
    bool differ = false;
    for (int i = 0; i < OPERANDS_MAX; i++)
        differ = differ || (touch[i].writes && region_differs(m, a, b, &op->operand[i]));
    return differ;
}

// Bytes that the operation does not write by its definition must not change.
static void expect_confined(const struct memory *m, const struct op *op, const char *may_change)
{
    for (int64_t i = 0; i < m->bytes; i++)
        EXPECT(may_change[i] || m->after[i] == m->before[i], op, -1);
}

// Draws all bytes again that the operation does not read. The result must stay the same.
static void expect_independent(const struct memory *m, const struct op *op,
                               const struct touch *touch, const char *is_read, const char *result,
                               struct attention_backend *backend, uint64_t *random)
{
    for (int64_t i = 0; i < m->bytes; i += 4)
        if (!is_read[i])
            draw((float *)(void *)(m->before + i), 4, random);
    run(m, op, backend);
    EXPECT(!writes_differ(m, op, touch, m->after, result), op, -1);
}

// Draws an operand again, and records whether the result changes.
static void observe_read(const struct memory *m, const struct op *op, const struct touch *touch,
                         int operand, struct attention_backend *backend, uint64_t *random)
{
    char *result = malloc((size_t)m->bytes);
    ck_assert(result);
    memcpy(result, m->after, (size_t)m->bytes);
    draw_region(m, &op->operand[operand], random);
    run(m, op, backend);
    if (writes_differ(m, op, touch, m->after, result))
        read_from[op->kind][operand] = true;
    free(result);
}

// Records which operands are written, and which are read.
static void observe(const struct memory *m, const struct op *op, const struct touch *touch,
                    struct attention_backend *backend, uint64_t *random)
{
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (touch[i].bytes > 0 && region_differs(m, m->before, m->after, &op->operand[i]))
            written[op->kind][i] = true;
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (touch[i].reads && touch[i].bytes > 0 && !read_from[op->kind][i])
            observe_read(m, op, touch, i, backend, random);
}

static void try_operation(const struct memory *m, const struct op *op,
                          struct attention_backend *backend, uint64_t *random)
{
    struct touch touch[OPERANDS_MAX];
    char *may_change = calloc(3, (size_t)m->bytes + 1);
    char *is_read = may_change + m->bytes, *result = is_read + m->bytes;
    ck_assert(may_change);
    touches_find(m->plan, op, touch);
    for (int i = 0; i < OPERANDS_MAX; i++) {
        if (touch[i].writes && touch[i].bytes > 0)
            mark_region(m, &op->operand[i], may_change);
        if (touch[i].reads && touch[i].bytes > 0)
            mark_region(m, &op->operand[i], is_read);
    }
    draw((float *)(void *)m->before, m->bytes, random);
    run(m, op, backend);
    expect_confined(m, op, may_change);
    memcpy(result, m->after, (size_t)m->bytes);
    expect_independent(m, op, touch, is_read, result, backend, random);
    observe(m, op, touch, backend, random);
    free(may_change);
}

// Each operand that the definition reads or writes was read or written at least once.
static void expect_all_seen(const struct plan *plan, const struct op *op)
{
    struct touch touch[OPERANDS_MAX];
    touches_find(plan, op, touch);
    for (int i = 0; i < OPERANDS_MAX; i++) {
        EXPECT(written[op->kind][i] == touch[i].writes, op, i);
        EXPECT(read_from[op->kind][i] == touch[i].reads, op, i);
    }
}

// In fp32: every operand consists of fp32 numbers.
START_TEST(operations_access_what_the_table_says)
{
    struct attention_backend *backend;
    struct cp_case c;
    struct plans p;
    uint64_t random = 1;
    ck_assert_int_eq(backend_cpu.create(&backend, NULL), STATUS_OK);
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        plans_small_case(seed, &c);
        c.dtype = DTYPE_FP32;
        plans_create(&p, &c);
        struct memory m;
        memory_init(&m, p.plans[seed % (uint64_t)p.size], backend);
        for (int32_t n = 0; n < m.plan->op_count; n++)
            if (m.plan->ops[n].kind != OP_EXCHANGE && m.plan->ops[n].kind != OP_COPY)
                try_operation(&m, &m.plan->ops[n], backend, &random);
        memory_fini(&m);
        plans_destroy(&p);
    }
    plans_full_case(COMM_P2P, 3, &c);
    plans_create(&p, &c);
    for (int32_t n = 0; n < p.plans[0]->op_count; n++)
        if (p.plans[0]->ops[n].kind != OP_EXCHANGE && p.plans[0]->ops[n].kind != OP_COPY)
            expect_all_seen(p.plans[0], &p.plans[0]->ops[n]);
    plans_destroy(&p);
    backend_cpu.destroy(backend);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("access");
    TCase *t = tcase_create("access");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_table_agrees_with_the_comments);
    tcase_add_test(t, the_table_agrees_for_collectives);
    tcase_add_test(t, the_table_agrees_for_linear_layers);
    tcase_add_test(t, operations_access_what_the_table_says);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
