// SPDX-License-Identifier: Apache-2.0
// Folds: attentions and conversions do the operations around them. The folded plan computes the
// same results.
#include "plan/folds.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/generate.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"
#include "tests/support/symbolic.h"

struct folded {
    struct plans p;
    struct fold *folds[WORLD_SIZE_MAX];
};

// True if a fold does more than it may.
static bool folds_more(const struct fold *fold, struct fold_ability may, bool sums)
{
    if (!may.folds && (fold->begins || fold->lse_begins || fold->out_only || fold->out.bytes > 0 ||
                       fold->keys_begin || fold->dk_out.bytes > 0 || fold->dv_out.bytes > 0))
        return true;
    return (!may.begins_queries && fold->queries_begin) || (!sums && fold->add_count > 0);
}

// Creates plans and their folds. A fraction 1 / `refusals` of the attentions may not fold, and the
// same fraction of the others may not begin queries; 0: all may. With 1, conversions may not add.
static void folded_create(struct folded *f, const struct cp_case *c, uint64_t seed, int refusals)
{
    plans_create(&f->p, c);
    for (int rank = 0; rank < f->p.size; rank++) {
        const struct plan *plan = f->p.plans[rank];
        struct fold_ability *may = calloc((size_t)plan->op_count + 1, sizeof(*may));
        struct fold *folds = calloc((size_t)plan->op_count + 1, sizeof(*folds));
        for (int32_t i = 0; i < plan->op_count; i++) {
            may[i].folds = (plan->ops[i].kind == OP_ATTEND_FORWARD ||
                            plan->ops[i].kind == OP_ATTEND_BACKWARD) &&
                           (refusals == 0 || generate_below(&seed, refusals) > 0);
            may[i].begins_queries =
                may[i].folds && (refusals == 0 || generate_below(&seed, refusals) > 0);
        }
        folds_find(plan, may, refusals != 1, folds);
        for (int32_t i = 0; i < plan->op_count; i++)
            ck_assert_msg(!folds_more(&folds[i], may[i], refusals != 1), "operation %d folds", i);
        f->folds[rank] = folds;
        free(may);
    }
}

static void folded_destroy(struct folded *f)
{
    for (int rank = 0; rank < f->p.size; rank++)
        free(f->folds[rank]);
    plans_destroy(&f->p);
}

static int count_done(const struct folded *f, int rank, enum plan_phase phase, enum op_kind kind)
{
    const struct plan *plan = f->p.plans[rank];
    int count = 0;
    for (int32_t i = 0; i < plan->op_count; i++)
        count += plan->ops[i].kind == kind && plan->ops[i].phase == phase && f->folds[rank][i].done;
    return count;
}

static const struct fold *fold_at(const struct folded *f, int rank, int step)
{
    return &f->folds[rank][plans_find(f->p.plans[rank], OP_ATTEND_FORWARD, PHASE_FORWARD, step)];
}

START_TEST(folded_plans_compute_the_definition)
{
    int folded = 0, added = 0, filled = 0, left = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct cp_case c;
        struct folded f;
        char why[ERROR_TEXT_MAX];
        plans_small_case(seed, &c);
        folded_create(&f, &c, seed, seed % 4 == 0 ? 5 : 0);
        if (!symbolic_run_folded(f.p.plans, f.folds, seed, why))
            ck_abort_msg("seed %llu: %s", (unsigned long long)seed, why);
        folded += count_done(&f, 0, PHASE_FORWARD, OP_CONVERT);
        filled += count_done(&f, 0, PHASE_BACKWARD, OP_FILL);
        for (int32_t i = 0; i < f.p.plans[0]->op_count; i++)
            left += f.folds[0][i].part_count > 0;
        added += count_done(&f, 0, PHASE_BACKWARD, OP_ADD);
        folded_destroy(&f);
    }
    ck_assert_int_ge(folded, 300);
    ck_assert_int_ge(added, 300);
    ck_assert_int_ge(filled, 300);
    ck_assert_int_ge(left, 100);
}
END_TEST

// In a causal ring the first attention begins O and LSE. The last attention in which a row sees a
// key rounds the row.
START_TEST(a_ring_is_folded)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(3, &c);
    folded_create(&f, &c, 0, 0);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_int_eq(count_done(&f, rank, PHASE_FORWARD, OP_FILL), 2);
        ck_assert_int_eq(count_done(&f, rank, PHASE_FORWARD, OP_CONVERT), 1);
        for (int step = 0; step < 3; step++) {
            const struct fold *fold = fold_at(&f, rank, step);
            ck_assert_int_eq(fold->begins, step == 0);
            ck_assert_int_eq(fold->lse_begins, step == 0);
            ck_assert(step > 0 || fold->lse_begin == -INFINITY);
            // The first chunk of rank r sees the keys of ranks 0 to r, which it has by step r.
            ck_assert_int_eq(fold->out.bytes > 0, step == 2 || step == rank);
            ck_assert(!fold->out_only); // backward reads O
        }
    }
    folded_destroy(&f);
}
END_TEST

// The fold of the operation that fills this operand of a backward attention.
static const struct fold *fill_of(const struct folded *f, int rank, int step, int operand)
{
    const struct plan *plan = f->p.plans[rank];
    int32_t i = plans_find(plan, OP_ATTEND_BACKWARD, PHASE_BACKWARD, step);
    int32_t buffer = plan->ops[i].operand[operand].buffer;
    while (plan->ops[i].kind != OP_FILL || plan->ops[i].operand[UNARY_DESTINATION].buffer != buffer)
        i--;
    return &f->folds[rank][i];
}

static int64_t parts_bytes(const struct fold *fill)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < fill->part_count; i++)
        bytes += fill->parts[i].bytes;
    return bytes;
}

// Rank r of a causal ring has the chunks r and 5 - r. Its queries see all keys of the ranks after
// it, and the first half of the keys of the ranks before it. Its first chunk of queries sees no key
// of the ranks after it.
START_TEST(gradients_are_folded)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(3, &c);
    folded_create(&f, &c, 0, 0);
    for (int rank = 0; rank < 3; rank++)
        for (int step = 0; step < 3; step++) {
            const struct plan *plan = f.p.plans[rank];
            int32_t attend = plans_find(plan, OP_ATTEND_BACKWARD, PHASE_BACKWARD, step);
            const struct region *r = plan->ops[attend].operand;
            const struct fold *keys = fill_of(&f, rank, step, ATTEND_DK);
            int source = (rank + 1 + step) % 3;
            int64_t bytes = r[ATTEND_DK].bytes + r[ATTEND_DV].bytes;
            ck_assert(f.folds[rank][attend].keys_begin);
            ck_assert_int_eq(f.folds[rank][attend].queries_begin, step == 0);
            ck_assert_int_eq(keys->done, source >= rank);
            ck_assert_int_eq(parts_bytes(keys), source >= rank ? 0 : bytes / 2);
            const struct fold *queries = fill_of(&f, rank, 0, ATTEND_DQ);
            ck_assert_int_eq(queries->done, rank == 2);
            ck_assert_int_eq(parts_bytes(queries), rank == 2 ? 0 : r[ATTEND_DQ].bytes / 2);
        }
    folded_destroy(&f);
}
END_TEST

// With too many sequences, rows are left in more places than a fill has parts.
START_TEST(too_many_parts_are_not_folded)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(2, &c);
    c.batch = FOLD_PARTS_MAX / 2;
    folded_create(&f, &c, 0, 0);
    ck_assert_int_eq(fill_of(&f, 1, 0, ATTEND_DK)->part_count, FOLD_PARTS_MAX);
    folded_destroy(&f);
    c.batch++;
    folded_create(&f, &c, 0, 0);
    const struct fold *fill = fill_of(&f, 1, 0, ATTEND_DK);
    ck_assert(!fill->done && fill->part_count == 0);
    int32_t attend = plans_find(f.p.plans[1], OP_ATTEND_BACKWARD, PHASE_BACKWARD, 0);
    ck_assert(!f.folds[1][attend].keys_begin);
    folded_destroy(&f);
}
END_TEST

static const struct fold *fold_of_backward(const struct folded *f, int rank, int step)
{
    return &f->folds[rank][plans_find(f->p.plans[rank], OP_ATTEND_BACKWARD, PHASE_BACKWARD, step)];
}

// An attention that computes all of dK and dV also rounds them. So on one rank, and for each group
// of heads of an all-to-all with each key head on one rank.
START_TEST(gradients_of_keys_are_rounded)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(1, &c);
    folded_create(&f, &c, 0, 0);
    ck_assert_int_eq(count_done(&f, 0, PHASE_BACKWARD, OP_FILL), 2);
    ck_assert_int_eq(count_done(&f, 0, PHASE_BACKWARD, OP_CONVERT), 1);
    const struct region *dkv =
        &f.p.plans[0]->ops[f.p.plans[0]->op_count - 1].operand[UNARY_DESTINATION];
    const struct fold *fold = fold_of_backward(&f, 0, 0);
    ck_assert_int_eq(fold->dk_out.buffer, dkv->buffer);
    ck_assert_int_eq(fold->dv_out.offset, fold->dk_out.bytes);
    ck_assert_int_eq(fold->dk_out.bytes + fold->dv_out.bytes, dkv->bytes);
    folded_destroy(&f);
    plans_even_case(2, &c);
    c.comm = COMM_A2A;
    c.heads = c.kv_heads = 4;
    folded_create(&f, &c, 0, 0);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert_int_eq(count_done(&f, rank, PHASE_BACKWARD, OP_CONVERT), 2);
        for (int step = 0; step < 2; step++)
            ck_assert_int_gt(fold_of_backward(&f, rank, step)->dv_out.bytes, 0);
    }
    folded_destroy(&f);
    c.kv_heads = 1; // both ranks compute a part
    folded_create(&f, &c, 0, 0);
    ck_assert_int_eq(count_done(&f, 0, PHASE_BACKWARD, OP_CONVERT), 0);
    ck_assert_int_eq(fold_of_backward(&f, 0, 0)->dk_out.bytes, 0);
    folded_destroy(&f);
}
END_TEST

// Keys that no query sees have gradients of 0.
START_TEST(gradients_of_unseen_keys_are_converted)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(1, &c);
    c.seqlen_kv = c.seqlen_q * 2;
    folded_create(&f, &c, 0, 0);
    ck_assert_int_eq(count_done(&f, 0, PHASE_BACKWARD, OP_CONVERT), 0);
    ck_assert_int_eq(fold_of_backward(&f, 0, 0)->dk_out.bytes, 0);
    folded_destroy(&f);
}
END_TEST

START_TEST(without_backward_nobody_reads_the_sum)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(2, &c);
    c.training = false;
    folded_create(&f, &c, 0, 0);
    for (int rank = 0; rank < 2; rank++)
        for (int step = 0; step < 2; step++)
            ck_assert_int_eq(fold_at(&f, rank, step)->out_only, step == 1);
    folded_destroy(&f);
}
END_TEST

// In an all_gather the conversion of dK and dV adds the parts of all other ranks, or the last
// FOLD_SUMMANDS_MAX - 1 parts if there are more.
START_TEST(conversions_add)
{
    static const int worlds[] = {2, 4, 8, 11};
    for (int i = 0; i < 4; i++) {
        struct cp_case c;
        struct folded f;
        plans_even_case(worlds[i], &c);
        c.comm = COMM_ALL_GATHER;
        folded_create(&f, &c, 0, 0);
        int most = worlds[i] - 1 < FOLD_SUMMANDS_MAX ? worlds[i] - 1 : FOLD_SUMMANDS_MAX - 1;
        for (int rank = 0; rank < f.p.size; rank++) {
            int32_t last = f.p.plans[rank]->op_count - 1;
            const struct fold *fold = &f.folds[rank][last];
            ck_assert_int_eq(count_done(&f, rank, PHASE_BACKWARD, OP_ADD), most);
            ck_assert_int_eq(fold->add_count, most);
            for (int n = 1; n < most; n++)
                ck_assert_int_lt(fold->adds[n - 1], fold->adds[n]);
        }
        folded_destroy(&f);
    }
}
END_TEST

// The conversion of dQ and that of dK and dV come last. Makes the first one read the sum of dK and
// dV, or the part that is added to it. Then the addition must not fold.
static void expect_no_addition(bool sum)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(2, &c);
    plans_create(&p, &c);
    struct plan *plan = p.plans[0];
    int32_t last = plan->op_count - 1, add = plans_find(plan, OP_ADD, PHASE_BACKWARD, 1);
    ck_assert_int_eq(plan->ops[last].kind, OP_CONVERT);
    ck_assert_int_eq(plan->ops[last - 1].kind, OP_CONVERT);
    struct region from = plan->ops[add].operand[sum ? UNARY_DESTINATION : UNARY_SOURCE];
    plan->ops[last - 1].operand[UNARY_SOURCE] = from;
    struct fold *folds = calloc((size_t)plan->op_count, sizeof(*folds));
    struct fold_ability *may = calloc((size_t)plan->op_count, sizeof(*may));
    folds_find(plan, may, true, folds);
    ck_assert(!folds[add].done);
    free(may);
    free(folds);
    plans_destroy(&p);
}

START_TEST(what_others_read_is_not_folded)
{
    expect_no_addition(true);
    expect_no_addition(false);
}
END_TEST

// LSE begins with a number for each head. An operation of its own fills it in.
START_TEST(learnable_sinks_stay)
{
    struct cp_case c;
    struct folded f;
    plans_even_case(2, &c);
    c.softmax = SOFTMAX_LEARNABLE;
    folded_create(&f, &c, 0, 0);
    ck_assert(fold_at(&f, 0, 0)->begins && !fold_at(&f, 0, 0)->lse_begins);
    ck_assert_int_eq(count_done(&f, 0, PHASE_FORWARD, OP_FILL_HEADS), 0);
    ck_assert_int_eq(count_done(&f, 0, PHASE_FORWARD, OP_CONVERT), 1);
    folded_destroy(&f);
}
END_TEST

// No operation of the forward pass is folded.
static void expect_nothing_done(const struct cp_case *c, int refusals)
{
    struct folded f;
    folded_create(&f, c, 0, refusals);
    for (int rank = 0; rank < f.p.size; rank++)
        for (int32_t i = 0; i < f.p.plans[rank]->op_count; i++) {
            const struct fold *fold = &f.folds[rank][i];
            ck_assert(f.p.plans[rank]->ops[i].phase == PHASE_BACKWARD ||
                      (!fold->done && !fold->begins && fold->out.bytes == 0));
        }
    folded_destroy(&f);
}

START_TEST(some_plans_are_not_folded)
{
    struct cp_case c;
    plans_even_case(2, &c);
    expect_nothing_done(&c, 1); // no attention may
    plans_even_case(2, &c);
    c.seqlen_kv = c.seqlen_q / 2; // the first queries see no key
    c.mask = MASK_CAUSAL_BOTTOM_RIGHT;
    c.sharding = SHARDING_CONTIGUOUS;
    expect_nothing_done(&c, 0);
}
END_TEST

// Changes all operations of a kind and phase. Then no operation of the kind `stays` is folded.
static void expect_no_folds(enum op_kind kind, enum plan_phase phase, enum op_kind stays,
                            void (*change)(const struct plan *plan, struct op *op))
{
    struct cp_case c;
    struct folded f;
    plans_even_case(1, &c);
    plans_create(&f.p, &c);
    struct plan *plan = f.p.plans[0];
    struct fold_ability *may = calloc((size_t)plan->op_count, sizeof(*may));
    f.folds[0] = calloc((size_t)plan->op_count, sizeof(*f.folds[0]));
    for (int32_t i = 0; i < plan->op_count; i++) {
        may[i] = (struct fold_ability){true, true};
        if (plan->ops[i].kind == kind && plan->ops[i].phase == phase)
            change(plan, &plan->ops[i]);
    }
    folds_find(plan, may, true, f.folds[0]);
    ck_assert_int_eq(count_done(&f, 0, phase, stays), 0);
    free(may);
    folded_destroy(&f);
}

static void starts_with_one(const struct plan *plan, struct op *op)
{
    (void)plan;
    op->value = 1;
}

static void waits(const struct plan *plan, struct op *op)
{
    (void)plan;
    op->wait_count = 1;
}

static void writes_what_was_read(const struct plan *plan, struct op *op)
{
    int32_t attend = plans_find(plan, OP_ATTEND_FORWARD, PHASE_FORWARD, 0);
    op->operand[UNARY_DESTINATION].buffer = plan->ops[attend].operand[ATTEND_Q].buffer;
}

static void begins_at_8(const struct plan *plan, struct op *op)
{
    (void)plan;
    op->operand[UNARY_DESTINATION].offset += 8;
}

static void reads_a_part(const struct plan *plan, struct op *op)
{
    (void)plan;
    op->operand[UNARY_SOURCE].bytes -= 4;
}

static void parts_dk_and_dv(const struct plan *plan, struct op *op)
{
    (void)plan;
    op->operand[ATTEND_DV].offset += 4;
}

START_TEST(changed_plans_are_not_folded)
{
    expect_no_folds(OP_FILL, PHASE_FORWARD, OP_CONVERT, starts_with_one);
    expect_no_folds(OP_FILL, PHASE_BACKWARD, OP_FILL, starts_with_one);
    expect_no_folds(OP_ATTEND_BACKWARD, PHASE_BACKWARD, OP_CONVERT, parts_dk_and_dv);
    for (enum plan_phase phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
        expect_no_folds(OP_CONVERT, phase, OP_CONVERT, waits);
        expect_no_folds(OP_CONVERT, phase, OP_CONVERT, writes_what_was_read);
        expect_no_folds(OP_CONVERT, phase, OP_CONVERT, begins_at_8);
        expect_no_folds(OP_CONVERT, phase, OP_CONVERT, reads_a_part);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("folds");
    TCase *tcase = tcase_create("folds");
    tcase_add_test(tcase, folded_plans_compute_the_definition);
    tcase_add_test(tcase, a_ring_is_folded);
    tcase_add_test(tcase, without_backward_nobody_reads_the_sum);
    tcase_add_test(tcase, gradients_are_folded);
    tcase_add_test(tcase, gradients_of_keys_are_rounded);
    tcase_add_test(tcase, gradients_of_unseen_keys_are_converted);
    tcase_add_test(tcase, too_many_parts_are_not_folded);
    tcase_add_test(tcase, conversions_add);
    tcase_add_test(tcase, what_others_read_is_not_folded);
    tcase_add_test(tcase, learnable_sinks_stay);
    tcase_add_test(tcase, some_plans_are_not_folded);
    tcase_add_test(tcase, changed_plans_are_not_folded);
    suite_add_tcase(s, tcase);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
