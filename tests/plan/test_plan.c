// SPDX-License-Identifier: Apache-2.0
// Built plans: checked, executed with symbols, counted, explained.
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cost.h"
#include "plan/shard.h"
#include "plan/team_order.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"
#include "tests/support/symbolic.h"

// ---- every case ----

// Number of cases in each run of a loop test. With more, slow builds would exceed its time limit.
#define SLICE 2500

START_TEST(generated_plans_pass_the_check)
{
    for (uint64_t i = 0; i < SLICE; i++) {
        uint64_t seed = (uint64_t)_i * SLICE + i;
        struct cp_case c;
        struct plans p;
        struct error error = {.text = ""};
        plans_any_case(seed, 100, &c);
        plans_create(&p, &c);
        if (plan_check(p.plans, p.size, &error) != STATUS_OK)
            ck_abort_msg("seed %llu: %s", (unsigned long long)seed, error.text);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(generated_plans_compute_the_definition)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        plans_small_case(seed, &c);
        plans_create(&p, &c);
        for (uint64_t order = 0; order < 2; order++)
            if (!symbolic_run(p.plans, seed * 2 + order, why))
                ck_abort_msg("seed %llu: %s", (unsigned long long)seed, why);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(memory_bound_holds)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c;
        struct plans p;
        int64_t bound;
        plans_any_case(seed, 100, &c);
        ck_assert_int_eq(case_memory(&c, &bound, NULL), STATUS_OK);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++) {
            if (plans_bytes(p.plans[rank]) > bound)
                ck_abort_msg("seed %llu: %lld bytes", (unsigned long long)seed, (long long)bound);
            ck_assert_int_le(p.plans[rank]->slice_count, plan_slices_bound(&c));
        }
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(flops_of_all_ranks_are_those_of_the_case)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct cp_case c;
        struct plans p;
        struct case_cost cost;
        double sum[3] = {0};
        plans_any_case(seed, 100, &c);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++)
            for (int32_t i = 0; i < p.plans[rank]->op_count; i++)
                sum[p.plans[rank]->ops[i].phase] += op_flops(p.plans[rank], &p.plans[rank]->ops[i]);
        case_cost(&c, &cost);
        ck_assert(fabs(sum[PHASE_FORWARD] - cost.forward) <= 1e-9 * cost.forward);
        ck_assert(fabs(sum[PHASE_BACKWARD] - cost.backward) <= 1e-9 * cost.backward);
        plans_destroy(&p);
    }
}
END_TEST

// ---- other algorithms ----

// A team of all ranks attends to whole sequences, as one process does.
START_TEST(dealt_sequences_are_one_slice)
{
    const enum case_mask masks[] = {MASK_NONE, MASK_CAUSAL, MASK_CAUSAL_BOTTOM_RIGHT};
    const enum case_format formats[] = {FORMAT_BSHD, FORMAT_SBHD, FORMAT_THD};
    for (int n = 0; n < 72; n++) {
        struct cp_case c;
        struct plans p;
        plans_even_case(1 + n % 8, &c);
        c.comm = COMM_A2A;
        c.heads = c.kv_heads = 8;
        c.batch = 3;
        c.format = formats[n / 8 % 3];
        c.mask = masks[n / 24];
        c.seqlen_q = c.seqlen_kv = 77;
        if (c.format == FORMAT_THD)
            case_list_set(&c, LIST_LENGTHS_Q, (const int32_t[]){30, 77, 5}, 3);
        plans_create(&p, &c);
        for (int32_t i = 0; i < p.plans[0]->op_count; i++) {
            const struct op *op = &p.plans[0]->ops[i];
            if (op->kind == OP_ATTEND_FORWARD || op->kind == OP_ATTEND_BACKWARD)
                ck_assert_int_eq(op->slice_count, 3);
        }
        plans_destroy(&p);
    }
}
END_TEST

// At most three slices for each sequence: the diagonals of the team's two parts, and one square.
START_TEST(dealt_teams_have_few_slices)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(8, &c);
    c.comm = COMM_A2A_P2P;
    c.a2a_size = 4;
    c.heads = c.kv_heads = 4;
    c.batch = 2;
    plans_create(&p, &c);
    for (int rank = 0; rank < 8; rank++)
        for (int32_t i = 0; i < p.plans[rank]->op_count; i++) {
            const struct op *op = &p.plans[rank]->ops[i];
            if (op->kind == OP_ATTEND_FORWARD || op->kind == OP_ATTEND_BACKWARD)
                ck_assert_int_le(op->slice_count, 3 * c.batch);
        }
    plans_destroy(&p);
}
END_TEST

// With more than TEAM_SEQUENCES_MAX different sequences the tokens are stored member by member.
START_TEST(many_uneven_sequences_pass)
{
    for (int batch = TEAM_SEQUENCES_MAX; batch <= TEAM_SEQUENCES_MAX + 1; batch++)
        for (enum case_comm comm = COMM_A2A; comm <= COMM_A2A_P2P; comm++) {
            struct cp_case c;
            struct plans p;
            struct error error = {.text = ""};
            char why[ERROR_TEXT_MAX];
            int32_t lengths[TEAM_SEQUENCES_MAX + 1];
            for (int i = 0; i < batch; i++)
                lengths[i] = i * 5 % 23;
            plans_even_case(4, &c);
            c.comm = comm;
            c.format = FORMAT_THD;
            c.batch = batch;
            c.seqlen_q = c.seqlen_kv = 23;
            case_list_set(&c, LIST_LENGTHS_Q, lengths, batch);
            ck_assert(team_in_order(&c, 2) == (batch == TEAM_SEQUENCES_MAX));
            plans_create(&p, &c);
            ck_assert_msg(plan_check(p.plans, 4, &error) == STATUS_OK, "%s", error.text);
            ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
            plans_destroy(&p);
        }
}
END_TEST

// ---- regions ----

// The offsets of all bytes of a region.
static int64_t places(const struct region *r, int64_t *list)
{
    int64_t count = 0;
    for (int64_t i = 0; i < region_pieces(r) && r->bytes > 0; i++)
        for (int64_t k = 0; k < r->bytes; k++)
            list[count++] = region_piece(r, i) + k;
    return count;
}

START_TEST(regions_are_built_as_documented)
{
    for (int n = 0; n < 5 * 5 * 5 * 3 * 3; n++) {
        int64_t told[256] = {0}, made[256] = {0}, count = 0;
        struct region r = {.offset = 7, .bytes = n % 5, .rows = n / 5 % 5, .blocks = n / 25 % 5};
        r.stride = r.bytes + n / 125 % 3;
        r.block_stride = r.rows * r.stride + n / 375;
        for (int64_t b = 0; b < r.blocks; b++)
            for (int64_t i = 0; i < r.rows; i++)
                for (int64_t k = 0; k < r.bytes; k++)
                    told[count++] = 7 + b * r.block_stride + i * r.stride + k;
        struct region m = region_make(r);
        ck_assert_int_eq(places(&m, made), count);
        ck_assert_mem_eq(made, told, (size_t)count * sizeof told[0]);
        ck_assert(m.bytes == 0 || (count > 0 && region_extent(&m) == made[count - 1] + 1 - 7));
        ck_assert(m.rows > 1 || m.blocks <= 1);
        ck_assert(m.bytes != 0 || m.rows <= 1);
    }
}
END_TEST

START_TEST(gather_overlaps)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(5, &c);
    c.comm = COMM_ALL_GATHER;
    plans_create(&p, &c);
    const struct plan *plan = p.plans[2];
    for (int step = 0; step < 5; step++) {
        int32_t attend = plans_find(plan, OP_ATTEND_FORWARD, PHASE_FORWARD, step);
        int32_t exchange = plans_find(plan, OP_EXCHANGE, PHASE_FORWARD, step);
        plans_expect_wait(plan, attend, plans_find(plan, OP_EXCHANGE, PHASE_FORWARD, step - 1));
        if (step < 4)
            plans_expect_wait(plan, exchange, -1); // each part has a place of its own
        attend = plans_find(plan, OP_ATTEND_BACKWARD, PHASE_BACKWARD, step);
        exchange = plans_find(plan, OP_EXCHANGE, PHASE_BACKWARD, step);
        plans_expect_wait(plan, attend, -1); // all keys have arrived
        if (step < 4)
            plans_expect_wait(plan, exchange, attend);
    }
    plans_destroy(&p);
}
END_TEST

START_TEST(gather_sends_no_more_than_it_must)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(5, &c);
    c.comm = COMM_ALL_GATHER;
    plans_create(&p, &c);
    int64_t elements = shard_rows(&c, SIDE_KV, 0) * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
    for (int rank = 0; rank < 5; rank++) {
        ck_assert_int_eq(plans_sent(p.plans[rank], PHASE_FORWARD),
                         4 * elements * case_element_bytes(&c));
        ck_assert_int_eq(plans_sent(p.plans[rank], PHASE_BACKWARD), 4 * elements * 4);
    }
    plans_destroy(&p);
}
END_TEST

// The n-th exchange of a phase.
static int32_t nth_exchange(const struct plan *plan, enum plan_phase phase, int n)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE && plan->ops[i].phase == phase && n-- == 0)
            return i;
    return -1;
}

// The next group of heads arrives during the attention of a group.
START_TEST(ulysses_overlaps)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(2, &c);
    c.comm = COMM_A2A;
    c.heads = c.kv_heads = 6; // three of each rank
    plans_create(&p, &c);
    const struct plan *plan = p.plans[1];
    const int come[] = {0, 1, 3}; // the other exchanges return results
    for (int group = 0; group < 3; group++) {
        int32_t attend = plans_find(plan, OP_ATTEND_FORWARD, PHASE_FORWARD, group);
        int32_t in = nth_exchange(plan, PHASE_FORWARD, come[group]);
        plans_expect_wait(plan, attend, in);
        plans_expect_wait(plan, in, -1);
    }
    ck_assert_int_ge(nth_exchange(plan, PHASE_FORWARD, 5), 0);
    ck_assert_int_eq(nth_exchange(plan, PHASE_FORWARD, 6), -1);
    plans_destroy(&p);
}
END_TEST

// ---- text ----

static char *explain(const struct plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    plan_explain(plan, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

START_TEST(explain_shows_what_happens)
{
    static const char *const lines[] = {
        "bf16 bshd p2p w4 b1 h2/1 s64 d4/8 causal\n",
        "rank 1 of 4 holds chunks 1 and 6 of 8: 16 of 64 queries, 16 of 64 keys of each sequence\n",
        "  kv            input         384 B\n",
        "  o_sum         scratch    1.00 KiB\n",
        "\nforward step 0\n",
        "comm    exchange          kv -> rank 2 (384 B), slot0 <- rank 0 (384 B)\n",
        "compute fill              lse = -inf\n",
        "compute attend            q x slot0 -> o_sum, 6.14 kFLOP\n       waits for 0 (exchange)",
        ", which brings slot0\n       rows 0..15  x  rows 0..7  (100 %)\n",
        "       rows 0..7  x  rows 0..7  where key - query <= 0  (56 %)\n",
        "       waits for 5 (attend), which reads slot0\n",
        "\nbackward step 3\n",
        "compute row dot           dout . o_sum -> d\n",
        "compute add               dkv_arrived -> dkv_part1\n",
        "compute convert           dkv_part1 -> dkv\n",
    };
    struct cp_case c;
    struct plans p;
    plans_even_case(4, &c);
    plans_create(&p, &c);
    char *text = explain(p.plans[1]);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "'%s' is missing in\n%s", lines[i], text);
    free(text);
    plans_destroy(&p);
}
END_TEST

START_TEST(explain_shows_what_is_done_to_logits)
{
    static const char *const lines[] = {
        "  bias          input      4.00 KiB\n",
        "  dbias         output     4.00 KiB\n",
        "  sink          input          16 B\n",
        "compute fill              max_part = -inf\n",
        "compute fill heads        sink -> lse_team\n",
        "compute attend            q_team x kv_team + bias -> o_sum, ",
        "max_part -> rank 0 (16 B), max_all <- rank 0 (16 B)",
        "compute max               max_all -> max_logit\n",
        "compute sink gradient     sink, lse_team, d -> dsink_part\n",
        "compute attend backward   q_team x kv_team + bias -> dq_sum, dkv_part0",
        "dbias_team -> rank 0 (2.00 KiB), dbias <- rank 0 (2.00 KiB)",
    };
    struct cp_case c;
    struct plans p;
    plans_full_case(COMM_A2A, 2, &c);
    plans_create(&p, &c);
    char *text = explain(p.plans[1]);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "'%s' is missing", lines[i]);
    free(text);
    plans_destroy(&p);
}
END_TEST

START_TEST(explain_reads_any_plan)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct cp_case c;
        struct plans p;
        plans_any_case(seed, 30, &c);
        plans_create(&p, &c);
        char *text = explain(p.plans[p.size - 1]);
        const struct plan *plan = p.plans[p.size - 1];
        int operations = 0;
        for (const char *at = text; (at = strstr(at, "\n  ")); at++)
            operations += strstr(at, "  comm    ") == at + 6 || strstr(at, "  compute ") == at + 6;
        ck_assert_int_eq(operations, plan->op_count);
        free(text);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(same_case_same_plan)
{
    struct cp_case c;
    struct plans a, b;
    plans_even_case(4, &c);
    plans_create(&a, &c);
    plans_create(&b, &c);
    for (int rank = 0; rank < 4; rank++) {
        char *first = explain(a.plans[rank]), *second = explain(b.plans[rank]);
        ck_assert_str_eq(first, second);
        free(first);
        free(second);
    }
    plans_destroy(&a);
    plans_destroy(&b);
}
END_TEST

// ---- memory ----

void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *block, size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *block, size_t count, size_t size);

static int allocations_left = -1; // allocations until one fails; negative: none fails

static bool allocation_fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *block, size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_reallocarray(block, count, size);
}

START_TEST(plan_survives_every_failed_allocation)
{
    struct cp_case c;
    struct plan *plan = NULL;
    struct error error;
    int failures = 0;
    plans_full_case((enum case_comm)_i, 4, &c);
    for (;; failures++) {
        allocations_left = failures;
        enum status status = plan_create(&c, 1, &plan, &error);
        bool failed = allocations_left < 0;
        allocations_left = -1;
        if (!failed)
            break;
        ck_assert_int_eq(status, STATUS_RESOURCE_EXHAUSTED);
        ck_assert_str_eq(error.text, "no memory for the plan of rank 1");
        ck_assert_ptr_null(plan);
    }
    ck_assert_int_gt(failures, 10);
    plan_destroy(plan);
    plan_destroy(NULL);
}
END_TEST

START_TEST(check_survives_every_failed_allocation)
{
    struct cp_case c;
    struct plans p;
    int failures = 0;
    plans_full_case((enum case_comm)_i, 2, &c);
    plans_create(&p, &c);
    for (;; failures++) {
        allocations_left = failures;
        enum status status = plan_check(p.plans, p.size, NULL);
        bool failed = allocations_left < 0;
        allocations_left = -1;
        if (!failed)
            break;
        ck_assert_int_eq(status, STATUS_RESOURCE_EXHAUSTED);
    }
    ck_assert_int_gt(failures, 5);
    plans_destroy(&p);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan");
    TCase *all = tcase_create("every case");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, generated_plans_pass_the_check, 0, 4);
    tcase_add_test(all, generated_plans_compute_the_definition);
    tcase_add_test(all, memory_bound_holds);
    tcase_add_test(all, flops_of_all_ranks_are_those_of_the_case);
    suite_add_tcase(s, all);
    TCase *others = tcase_create("others");
    tcase_add_test(others, gather_overlaps);
    tcase_add_test(others, gather_sends_no_more_than_it_must);
    tcase_add_test(others, ulysses_overlaps);
    tcase_add_test(others, dealt_sequences_are_one_slice);
    tcase_add_test(others, dealt_teams_have_few_slices);
    tcase_add_test(others, many_uneven_sequences_pass);
    tcase_add_test(others, regions_are_built_as_documented);
    suite_add_tcase(s, others);
    TCase *text = tcase_create("text");
    tcase_add_test(text, explain_shows_what_happens);
    tcase_add_test(text, explain_shows_what_is_done_to_logits);
    tcase_add_test(text, explain_reads_any_plan);
    tcase_add_test(text, same_case_same_plan);
    suite_add_tcase(s, text);
    TCase *memory = tcase_create("memory");
    tcase_add_loop_test(memory, plan_survives_every_failed_allocation, COMM_P2P, COMM_A2A_P2P + 1);
    tcase_add_loop_test(memory, check_survives_every_failed_allocation, COMM_P2P, COMM_A2A_P2P + 1);
    suite_add_tcase(s, memory);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
