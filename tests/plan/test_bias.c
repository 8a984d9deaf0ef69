// SPDX-License-Identifier: Apache-2.0
// Layout of the bias: some shapes, and the token of every row.
#include "plan/bias.h"

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/team_order.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

// 3 heads, 2 sequences of 8 queries and 5 keys on 2 ranks.
static struct cp_case bias_case(enum case_comm comm, enum case_format format, enum case_bias bias)
{
    struct cp_case c;
    case_init(&c);
    c.comm = comm;
    c.format = format;
    c.bias = bias;
    c.heads = c.kv_heads = 3;
    c.seqlen_q = 8;
    c.seqlen_kv = 5;
    return c;
}

static const struct shape {
    enum case_comm comm;
    enum case_format format;
    enum case_bias bias;
    int32_t heads[2], head_first[2]; // by rank
    int64_t rows, row_step;
    bool whole;
    int64_t first[2], count[2]; // elements of the gradient that each rank delivers
} shapes[] = {
    {COMM_P2P, FORMAT_BSHD, BIAS_111S, {1, 1}, {0, 0}, 1, 0, true, {0, 2}, {2, 3}},
    {COMM_P2P, FORMAT_BSHD, BIAS_1H1S, {3, 3}, {0, 0}, 1, 0, true, {0, 7}, {7, 8}},
    {COMM_P2P, FORMAT_BSHD, BIAS_B11S, {1, 1}, {0, 0}, 2, 0, true, {0, 5}, {5, 5}},
    {COMM_P2P, FORMAT_SBHD, BIAS_BH1S, {3, 3}, {0, 0}, 2, 0, true, {0, 15}, {15, 15}},
    {COMM_P2P, FORMAT_BSHD, BIAS_11SS, {1, 1}, {0, 0}, 4, 1, false, {0, 0}, {20, 20}},
    {COMM_P2P, FORMAT_SBHD, BIAS_1HSS, {3, 3}, {0, 0}, 4, 1, false, {0, 0}, {60, 60}},
    {COMM_P2P, FORMAT_BSHD, BIAS_B1SS, {1, 1}, {0, 0}, 8, 1, false, {0, 0}, {40, 40}},
    {COMM_P2P, FORMAT_SBHD, BIAS_BHSS, {3, 3}, {0, 0}, 8, 2, false, {0, 0}, {120, 120}},
    {COMM_P2P, FORMAT_THD, BIAS_1HSS, {3, 3}, {0, 0}, 8, 1, true, {0, 60}, {60, 60}},
    {COMM_P2P, FORMAT_THD, BIAS_BHSS, {3, 3}, {0, 0}, 8, 1, false, {0, 0}, {120, 120}},
    {COMM_A2A, FORMAT_BSHD, BIAS_11SS, {1, 1}, {0, 0}, 8, 1, false, {0, 0}, {20, 20}},
    {COMM_A2A, FORMAT_BSHD, BIAS_1HSS, {1, 2}, {0, 1}, 8, 1, false, {0, 0}, {60, 60}},
    {COMM_A2A, FORMAT_SBHD, BIAS_BHSS, {1, 2}, {0, 1}, 16, 2, false, {0, 0}, {120, 120}},
    {COMM_A2A, FORMAT_THD, BIAS_1HSS, {1, 2}, {0, 1}, 8, 1, true, {0, 60}, {60, 60}},
    {COMM_A2A_P2P, FORMAT_BSHD, BIAS_1H1S, {1, 2}, {0, 1}, 1, 0, true, {0, 7}, {7, 8}},
};

START_TEST(shapes_are_as_described)
{
    const struct shape *s = &shapes[_i];
    struct cp_case c = bias_case(s->comm, s->format, s->bias);
    ck_assert_int_eq(bias_is_whole(&c), s->whole);
    ck_assert_int_eq(bias_row_step(&c), s->row_step);
    for (int rank = 0; rank < 2; rank++) {
        struct bias_shape shape = bias_shape(&c, rank);
        struct bias_share share = bias_share(&c, rank);
        ck_assert_int_eq(shape.heads, s->heads[rank]);
        ck_assert_int_eq(shape.head_first, s->head_first[rank]);
        ck_assert_int_eq(shape.rows, s->rows);
        ck_assert_int_eq(shape.columns, 5);
        ck_assert_int_eq(share.first, s->first[rank]);
        ck_assert_int_eq(share.count, s->count[rank]);
    }
    ck_assert_int_eq(bias_head_stride(&c, s->rows), bias_has_heads(&c) ? s->rows * 5 : 0);
}
END_TEST

START_TEST(a_member_without_heads_needs_none)
{
    struct cp_case c = bias_case(COMM_A2A, FORMAT_BSHD, BIAS_11SS);
    c.heads = c.kv_heads = 1;
    ck_assert_int_eq(bias_shape(&c, 0).heads, 0);
    ck_assert_int_eq(bias_shape(&c, 1).heads, 1);
    ck_assert_int_eq(bias_share(&c, 0).count, 20); // of its queries
}
END_TEST

// The schedule of the case has no effect: a guest has its own schedule.
START_TEST(a_rank_of_a_guest_has_the_bias_of_its_own_queries)
{
    struct cp_case c = bias_case(COMM_A2A, FORMAT_SBHD, BIAS_BHSS), ring = c;
    strcpy(c.implementation, "guest");
    ring.comm = COMM_P2P;
    for (int rank = 0; rank < 2; rank++) {
        struct bias_shape shape = bias_shape(&c, rank), own = bias_shape(&ring, rank);
        ck_assert_int_eq(shape.heads, 3);
        ck_assert_int_eq(shape.head_first, 0);
        ck_assert_int_eq(shape.rows, own.rows);
        ck_assert_int_eq(bias_share(&c, rank).count, bias_share(&ring, rank).count);
    }
}
END_TEST

START_TEST(no_bias_has_no_dimension)
{
    struct cp_case c = bias_case(COMM_P2P, FORMAT_BSHD, BIAS_NONE);
    ck_assert(!bias_has_batch(&c) && !bias_has_heads(&c) && !bias_has_queries(&c));
    ck_assert_int_eq(bias_row_step(&c), 0);
}
END_TEST

// The sequence and position of a row of the bias; -1: not known yet.
struct meaning {
    int64_t sequence, position;
};

static void check_row(const struct cp_case *c, struct meaning *row, int64_t sequence,
                      int64_t position)
{
    struct meaning m = {bias_has_batch(c) ? sequence : 0, bias_has_queries(c) ? position : 0};
    ck_assert(row->sequence < 0 || (row->sequence == m.sequence && row->position == m.position));
    *row = m;
}

// Each row of the team's bias has one meaning, and no span has rows beyond the end.
static void check_team(const struct cp_case *c, struct team team)
{
    int64_t rows = bias_rows(c, team);
    struct meaning *meaning = calloc((size_t)rows + 1, sizeof *meaning);
    struct span *spans = calloc((size_t)team.size * (size_t)shard_spans_max(c) + 1, sizeof *spans);
    for (int64_t i = 0; i < rows; i++)
        meaning[i].sequence = -1;
    int count = team_spans(c, SIDE_Q, team, spans);
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len; t++) {
            int64_t row = spans[n].bias_row + t * bias_row_step(c);
            if (row < 0 || row >= rows)
                ck_abort_msg("row %lld of %lld", (long long)row, (long long)rows);
            check_row(c, &meaning[row], spans[n].sequence, spans[n].position + t);
        }
    free(meaning);
    free(spans);
}

START_TEST(no_row_is_shared_by_two_tokens)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        uint64_t state = seed;
        generate_case(seed, 8, 60, &c);
        generate_logits(&state, &c);
        for (int rank = 0; rank < c.world_size; rank++) {
            check_team(&c, bias_team(&c, rank));
            check_team(&c, team_of(rank, 1));
        }
    }
}
END_TEST

// Marks the rectangles of an operation's slices in a gradient. Fails the test if they overlap.
static void check_rectangles(const struct plan *plan, const struct op *op, char *met)
{
    const struct cp_case *c = &plan->c;
    const struct region *dbias = &op->operand[ATTEND_DBIAS];
    int64_t step = bias_row_step(c), heads = op->heads.count;
    ck_assert_int_eq(dbias->bytes, heads * op->bias_rows * c->seqlen_kv * 4);
    for (int32_t n = op->slice_first; n < op->slice_first + op->slice_count; n++) {
        const struct slice *s = &plan->slices[n];
        ck_assert_int_le(s->bias_column + s->kv_len, c->seqlen_kv);
        for (int64_t i = 0; i < heads * s->q_len; i++) {
            int64_t row = s->bias_row + i % s->q_len * step;
            ck_assert_int_lt(row, op->bias_rows);
            char *first = met + dbias->offset / 4 + s->bias_column +
                          (i / s->q_len * op->bias_rows + row) * c->seqlen_kv;
            for (int64_t j = 0; j < s->kv_len; j++)
                ck_assert_int_eq(first[j]++, 0);
        }
    }
}

START_TEST(rectangles_of_a_gradient_that_is_written_once_are_apart)
{
    int plans = 0, operations = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        uint64_t state = seed;
        generate_case(seed, 8, 40, &c);
        generate_logits(&state, &c);
        c.training = true;
        for (int rank = 0; rank < c.world_size && bias_is_once(&c); rank++, plans++) {
            struct plan *plan;
            char *met = NULL;
            ck_assert_int_eq(plan_create(&c, rank, &plan, NULL), STATUS_OK);
            for (int32_t i = 0; i < plan->op_count; i++) {
                const struct op *op = &plan->ops[i];
                if (op->kind != OP_ATTEND_BACKWARD)
                    continue;
                if (!met)
                    met = calloc(1, (size_t)plan->buffers[op->operand[ATTEND_DBIAS].buffer].bytes);
                check_rectangles(plan, op, met);
                operations++;
            }
            free(met);
            plan_destroy(plan);
        }
    }
    ck_assert_int_gt(plans, 500);
    ck_assert_int_gt(operations, plans);
}
END_TEST

START_TEST(a_gradient_is_written_once_unless_elements_are_shared)
{
    static const enum case_bias shared[] = {BIAS_NONE, BIAS_11SS, BIAS_1H1S, BIAS_B1SS, BIAS_BH1S};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        struct cp_case c = bias_case(COMM_P2P, FORMAT_BSHD, shared[i]);
        c.batch = 1;
        ck_assert(!bias_is_once(&c));
    }
    struct cp_case c = bias_case(COMM_P2P, FORMAT_BSHD, BIAS_1HSS);
    ck_assert(!bias_is_once(&c));
    c.batch = 1;
    ck_assert(bias_is_once(&c));
    c.format = FORMAT_THD;
    ck_assert(!bias_is_once(&c));
    c.bias = BIAS_BHSS;
    ck_assert(bias_is_once(&c));
}
END_TEST

// Shares of a gradient that is summed over all ranks are consecutive. With a bias for each head
// they are complete, and the members of a team have all heads.
START_TEST(shares_cover_the_gradient)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        uint64_t state = seed;
        int64_t next = 0, held = 0;
        generate_case(seed, 8, 60, &c);
        generate_logits(&state, &c);
        for (int rank = 0; rank < c.world_size && bias_is_whole(&c); rank++) {
            struct bias_share share = bias_share(&c, rank);
            ck_assert_int_eq(share.first, next);
            next += share.count;
        }
        for (int rank = 0; rank < bias_team(&c, 0).size; rank++)
            held += bias_shape(&c, rank).heads;
        struct bias_shape shape = bias_shape(&c, 0);
        if (bias_is_whole(&c) && bias_has_heads(&c))
            ck_assert_int_eq(next, held * shape.rows * shape.columns);
        if (bias_has_heads(&c))
            ck_assert_int_eq(held, c.heads);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("bias");
    TCase *tcase = tcase_create("geometry");
    tcase_add_loop_test(tcase, shapes_are_as_described, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tcase, a_member_without_heads_needs_none);
    tcase_add_test(tcase, a_rank_of_a_guest_has_the_bias_of_its_own_queries);
    tcase_add_test(tcase, no_bias_has_no_dimension);
    tcase_add_test(tcase, no_row_is_shared_by_two_tokens);
    tcase_add_test(tcase, rectangles_of_a_gradient_that_is_written_once_are_apart);
    tcase_add_test(tcase, a_gradient_is_written_once_unless_elements_are_shared);
    tcase_add_test(tcase, shares_cover_the_gradient);
    suite_add_tcase(s, tcase);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
