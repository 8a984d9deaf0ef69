// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plans.h"

#include <check.h>

#include "tests/support/generate.h"

void plans_create(struct plans *p, const struct cp_case *c)
{
    struct error error = {.text = ""};
    p->size = c->world_size;
    if (case_check(c, &error) != STATUS_OK)
        ck_abort_msg("%s", error.text);
    for (int rank = 0; rank < p->size; rank++) {
        p->plans[rank] = NULL;
        if (plan_create(c, rank, &p->plans[rank], &error) != STATUS_OK)
            ck_abort_msg("%s", error.text);
    }
}

void plans_destroy(struct plans *p)
{
    for (int rank = 0; rank < p->size; rank++)
        plan_destroy(p->plans[rank]);
}

void plans_small_case(uint64_t seed, struct cp_case *c)
{
    generate_case(seed, 8, 20, c);
    c->kv_heads = 1 + c->kv_heads % 2;
    c->heads = c->kv_heads * (1 + c->heads % 2);
    c->head_dim_qk = 1 + c->head_dim_qk % 3;
    c->head_dim_v = 1 + c->head_dim_v % 3;
    uint64_t state = seed;
    generate_logits(&state, c);
}

void plans_any_case(uint64_t seed, int64_t seqlen_max, struct cp_case *c)
{
    uint64_t state = seed;
    generate_case(seed, 8, seqlen_max, c);
    generate_logits(&state, c);
}

void plans_full_case(enum case_comm comm, int world_size, struct cp_case *c)
{
    plans_even_case(world_size, c);
    c->comm = comm;
    c->heads = 4;
    c->kv_heads = 2;
    c->bias = BIAS_1HSS;
    c->softmax = SOFTMAX_LEARNABLE;
    c->max_logit = true;
}

void plans_even_case(int world_size, struct cp_case *c)
{
    case_init(c);
    c->world_size = world_size;
    c->batch = 1;
    c->heads = 2;
    c->kv_heads = 1;
    c->head_dim_qk = 4;
    c->head_dim_v = 8;
    c->seqlen_q = c->seqlen_kv = 16 * world_size;
}

int64_t plans_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->buffer_count; i++)
        bytes += plan->buffers[i].bytes;
    return bytes;
}

int32_t plans_find(const struct plan *plan, enum op_kind kind, enum plan_phase phase, int step)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == kind && plan->ops[i].phase == phase && plan->ops[i].step == step)
            return i;
    return -1;
}

void plans_expect_wait(const struct plan *plan, int32_t op, int32_t other)
{
    ck_assert_int_ge(op, 0);
    ck_assert_int_eq(plan->ops[op].wait_count, other >= 0);
    if (other >= 0)
        ck_assert_int_eq(plan->waits[plan->ops[op].wait_first], other);
}

int64_t plans_sent(const struct plan *plan, enum plan_phase phase)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].phase == phase)
            bytes += op_bytes(plan, &plan->ops[i]);
    return bytes;
}
