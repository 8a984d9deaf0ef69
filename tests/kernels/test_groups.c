// SPDX-License-Identifier: Apache-2.0
// Tests the grouping of slices into calls of providers in shared objects. Every slice of a plan
// that has a visible pair is in exactly one group. The rectangles of a group share neither queries
// nor keys. Bands and strides agree with the slices.
#include <check.h>

#include "kernels/groups.h"
#include "plan/plan.h"
#include "rank/operations.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

// True if the band of the group hides the same pairs of the slice's rectangle as the slice's mask.
static bool masks_agree(const struct slice *s, const struct group *g)
{
    for (int64_t i = 0; i < s->q_len; i++) {
        int64_t begin, end;
        slice_visible(s, i, &begin, &end);
        for (int64_t j = 0; j < s->kv_len; j++) {
            bool visible = (g->band_left < 0 || i - j <= g->band_left) &&
                           (g->band_right < 0 || j - i <= g->band_right);
            if (visible != (j >= begin && j < end))
                return false;
        }
    }
    return true;
}

// True if the rectangle has the rows of the slice.
static bool is_of(const struct cpattn_rectangle *r, const struct slice *s)
{
    return r->q_row == s->q_row && r->q_len == s->q_len && r->kv_row == s->kv_row &&
           r->kv_len == s->kv_len;
}

// Number of rectangles with the rows and the mask of the slice, in all groups.
static int times_found(const struct groups *g, const struct slice *s)
{
    int found = 0;
    for (int32_t i = 0; i < g->count; i++)
        for (int32_t n = 0; n < g->list[i].count; n++)
            found += is_of(&g->list[i].rectangles[n], s) && masks_agree(s, &g->list[i]);
    return found;
}

// Checks the packed rows of a group, and the strides and lengths of a dense group.
static void check_rows(const struct group *g, bool varlen)
{
    int64_t q = 0, kv = 0;
    ck_assert(varlen || g->dense);
    for (int32_t n = 0; n < g->count; n++) {
        const struct cpattn_rectangle *r = &g->rectangles[n], *first = &g->rectangles[0];
        ck_assert_int_eq(r->q_packed, q);
        ck_assert_int_eq(r->kv_packed, kv);
        q += r->q_len;
        kv += r->kv_len;
        if (!g->dense)
            continue;
        ck_assert_int_eq(r->q_row, first->q_row + n * g->q_stride);
        ck_assert_int_eq(r->kv_row, first->kv_row + n * g->kv_stride);
        ck_assert_int_eq(r->q_len, first->q_len);
        ck_assert_int_eq(r->kv_len, first->kv_len);
    }
    ck_assert_int_eq(q, g->q.total);
    ck_assert_int_eq(kv, g->kv.total);
}

#define ROWS_MAX 4096

// Checks that no query row and no key row is in two rectangles of a group.
static void check_apart(const struct group *g, int64_t step)
{
    bool q[ROWS_MAX] = {false}, kv[ROWS_MAX] = {false};
    for (int32_t n = 0; n < g->count; n++) {
        const struct cpattn_rectangle *r = &g->rectangles[n];
        ck_assert_int_lt(r->q_row + r->q_len * step, ROWS_MAX);
        ck_assert_int_lt(r->kv_row + r->kv_len * step, ROWS_MAX);
        for (int64_t i = 0; i < r->q_len; i++) {
            ck_assert(!q[r->q_row + i * step]);
            q[r->q_row + i * step] = true;
        }
        for (int64_t j = 0; j < r->kv_len; j++) {
            ck_assert(!kv[r->kv_row + j * step]);
            kv[r->kv_row + j * step] = true;
        }
    }
}

static void check_op(const struct plan *plan, const struct op *op, bool varlen)
{
    struct attention_op a = {.shape = attends_shape(plan, op),
                             .slices = plan->slices + op->slice_first,
                             .slice_count = op->slice_count};
    struct groups g;
    struct error error;
    ck_assert_int_eq(groups_build(&g, &a, varlen, &error), STATUS_OK);
    for (int32_t i = 0; i < a.slice_count; i++)
        ck_assert_int_eq(times_found(&g, &a.slices[i]), slice_pairs(&a.slices[i]) > 0);
    for (int32_t i = 0; i < g.count; i++) {
        check_rows(&g.list[i], varlen);
        check_apart(&g.list[i], a.shape.row_step);
    }
    groups_fini(&g);
}

START_TEST(groups_are_the_slices)
{
    int attentions = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct cp_case c;
        struct plan *plan;
        struct error error;
        generate_case(seed, 8, 200, &c);
        int64_t rows = c.batch * (c.seqlen_q + c.seqlen_kv);
        if (rows >= ROWS_MAX / 4)
            continue;
        ck_assert_int_eq(plan_create(&c, (int)(seed % (uint64_t)c.world_size), &plan, &error),
                         STATUS_OK);
        for (int32_t i = 0; i < plan->op_count; i++)
            if (plan->ops[i].kind == OP_ATTEND_FORWARD) {
                check_op(plan, &plan->ops[i], false);
                check_op(plan, &plan->ops[i], true);
                attentions++;
            }
        plan_destroy(plan);
    }
    ck_assert_int_gt(attentions, 100);
}
END_TEST

// Sequences of equal length share one dense call. Sequences of different lengths share a call only
// with varlen.
START_TEST(sequences_share_a_call)
{
    struct slice same[3], other[3];
    for (int i = 0; i < 3; i++) {
        same[i] = (struct slice){
            .q_row = 10 * i, .q_len = 8, .kv_row = 10 * i, .kv_len = 8, .left = SLICE_UNBOUNDED};
        other[i] = same[i];
        other[i].q_len = other[i].kv_len = 8 - 3 * i;
    }
    struct attention_op op = {.shape = {.row_step = 1}, .slices = same, .slice_count = 3};
    struct groups g;
    ck_assert_int_eq(groups_build(&g, &op, false, NULL), STATUS_OK);
    ck_assert_int_eq(g.count, 1);
    ck_assert_int_eq(g.list[0].q_stride, 10);
    ck_assert_int_eq(g.list[0].band_right, 0);
    groups_fini(&g);
    op.slices = other;
    ck_assert_int_eq(groups_build(&g, &op, false, NULL), STATUS_OK);
    ck_assert_int_eq(g.count, 3);
    groups_fini(&g);
    ck_assert_int_eq(groups_build(&g, &op, true, NULL), STATUS_OK);
    ck_assert_int_eq(g.count, 1);
    ck_assert(!g.list[0].dense);
    groups_fini(&g);
}
END_TEST

// The first four queries of this slice see no key. The band of a group cannot express that.
START_TEST(slices_that_are_not_trimmed_are_refused)
{
    struct slice slice = {.q_len = 8, .kv_len = 8, .offset = 4, .left = SLICE_UNBOUNDED};
    struct attention_op op = {.shape = {.row_step = 1}, .slices = &slice, .slice_count = 1};
    struct groups g;
    struct error error;
    ck_assert_int_eq(groups_build(&g, &op, true, &error), STATUS_INTERNAL);
    groups_fini(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("groups");
    TCase *groups = tcase_create("groups");
    tcase_add_test(groups, groups_are_the_slices);
    tcase_add_test(groups, sequences_share_a_call);
    tcase_add_test(groups, slices_that_are_not_trimmed_are_refused);
    suite_add_tcase(suite, groups);
    return runner_run(suite);
}
