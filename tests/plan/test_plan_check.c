// SPDX-License-Identifier: Apache-2.0
// The checker on plans with one fault each.
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"

static void expect_fault(struct plans *p, const char *text)
{
    struct error error = {.text = ""};
    enum status status = plan_check(p->plans, p->size, &error);
    if (status != STATUS_INTERNAL || !strstr(error.text, text))
        ck_abort_msg("'%s' was expected, not %d '%s'", text, (int)status, error.text);
}

// ---- waits ----

static int check_without_each_wait(struct plans *p, struct op *op)
{
    struct error error;
    op->wait_count--;
    enum status status = plan_check(p->plans, p->size, &error);
    op->wait_count++;
    if (status != STATUS_INTERNAL || !strstr(error.text, "nothing orders them"))
        ck_abort_msg("a wait can be left out: %s", status == STATUS_OK ? "ok" : error.text);
    return 1;
}

START_TEST(no_wait_can_be_left_out)
{
    int waits = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct cp_case c;
        struct plans p;
        plans_small_case(seed, &c);
        plans_create(&p, &c);
        for (int rank = 0; rank < p.size; rank++)
            for (int32_t i = 0; i < p.plans[rank]->op_count; i++)
                if (p.plans[rank]->ops[i].wait_count > 0) {
                    // With two streams an operation never has more than one wait.
                    ck_assert_int_eq(p.plans[rank]->ops[i].wait_count, 1);
                    waits += check_without_each_wait(&p, &p.plans[rank]->ops[i]);
                }
        plans_destroy(&p);
    }
    ck_assert_int_gt(waits, 1000);
}
END_TEST

// ---- one fault each, in the plan of rank 1 of 3 ----

static struct op *op_of(struct plan *plan, enum op_kind kind)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == kind)
            return &plan->ops[i];
    abort();
}

static struct plan_buffer *buffer_of(struct plan *plan, enum buffer_role role)
{
    struct plan_buffer *buffer = plan->buffers;
    while (buffer->role != role)
        buffer++;
    return buffer;
}

// Removes an operation and adjusts the waits for later ones.
static void remove_op(struct plan *plan, const struct op *op)
{
    int32_t index = (int32_t)(op - plan->ops);
    memmove(plan->ops + index, plan->ops + index + 1,
            (size_t)(plan->op_count - index - 1) * sizeof *op);
    plan->op_count--;
    for (int32_t i = 0; i < plan->wait_count; i++)
        plan->waits[i] -= plan->waits[i] > index;
}

static void receives_more(struct plan *plan)
{
    struct region *receive = &plan->transfers[1].receive;
    ck_assert_int_gt(receive->bytes, 0);
    receive->bytes += 4;
    plan->buffers[receive->buffer].bytes += 4;
}

static void sends_less(struct plan *plan)
{
    plan->transfers[0].send.bytes -= 4;
}

static void sends_nothing(struct plan *plan)
{
    op_of(plan, OP_EXCHANGE)->transfer_first++;
    op_of(plan, OP_EXCHANGE)->transfer_count--;
}

static void other_peer(struct plan *plan)
{
    plan->transfers[0].peer = 0;
}

static void no_peer(struct plan *plan)
{
    plan->transfers[0].peer = 3;
}

static void transfer_outside(struct plan *plan)
{
    plan->transfers[0].send.offset = -4;
}

// Makes a message of 384 bytes one of pieces of 4 bytes.
static struct region *send_in_blocks(struct plan *plan, int64_t blocks, int64_t block_stride)
{
    struct region *send = &plan->transfers[0].send;
    *send = (struct region){send->buffer, 0, 4, 2, 8, blocks, block_stride};
    return send;
}

static void blocks_outside(struct plan *plan)
{
    send_in_blocks(plan, 25, 16);
}

static void blocks_that_meet(struct plan *plan)
{
    send_in_blocks(plan, 2, 11);
}

static void blocks_without_rows(struct plan *plan)
{
    send_in_blocks(plan, 2, 16)->rows = 1;
}

// The pieces reach the end of the buffer, but have fewer bytes.
static void blocks_inside(struct plan *plan)
{
    send_in_blocks(plan, 24, 16);
}

static void transfers_beyond(struct plan *plan)
{
    op_of(plan, OP_EXCHANGE)->transfer_count = 1000;
}

static void append_op(struct plan *plan, struct op op)
{
    plan->ops = reallocarray(plan->ops, (size_t)plan->op_count + 1, sizeof *plan->ops);
    ck_assert_ptr_nonnull(plan->ops);
    plan->ops[plan->op_count++] = op;
}

static void exchange_too_many(struct plan *plan)
{
    append_op(plan,
              (struct op){.kind = OP_EXCHANGE, .stream = STREAM_COMM, .phase = PHASE_BACKWARD});
}

static void receive_over_send(struct plan *plan)
{
    plan->transfers[3].receive = plan->transfers[2].send;
}

static void wait_for_later(struct plan *plan)
{
    plan->waits[0] = plan->op_count - 1;
}

static void wait_for_later_exchange(struct plan *plan)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE)
            plan->waits[0] = i; // the last one
}

static void wait_for_nothing(struct plan *plan)
{
    plan->waits[0] = -1;
}

static void wait_for_own_stream(struct plan *plan)
{
    plan->waits[0] = 1; // the first wait is an attend's, operation 1 a fill
}

static void operand_outside(struct plan *plan)
{
    struct region *q = &op_of(plan, OP_ATTEND_FORWARD)->operand[ATTEND_Q];
    q->offset = 2;
}

static void operand_of_no_buffer(struct plan *plan)
{
    op_of(plan, OP_ADD)->operand[UNARY_SOURCE].buffer = plan->buffer_count;
}

static void operand_negative(struct plan *plan)
{
    op_of(plan, OP_CONVERT)->operand[UNARY_SOURCE].bytes = -8;
}

static void operand_overflows(struct plan *plan)
{
    struct region *r = &op_of(plan, OP_FILL)->operand[UNARY_DESTINATION];
    r->offset = INT64_MAX;
}

static void operand_too_many(struct plan *plan)
{
    struct op *fill = op_of(plan, OP_FILL);
    fill->operand[ATTEND_DV] = fill->operand[UNARY_DESTINATION];
}

static void kind_unknown(struct plan *plan)
{
    plan->ops[2].kind = OP_KINDS;
}

static void stream_wrong(struct plan *plan)
{
    op_of(plan, OP_ADD)->stream = STREAM_COMM;
}

static void slice_of_queries_outside(struct plan *plan)
{
    plan->slices[0].q_len += 1000;
}

static void slice_of_keys_outside(struct plan *plan)
{
    plan->slices[plan->slice_count - 1].kv_row += 9;
}

static void slice_empty(struct plan *plan)
{
    plan->slices[0].kv_len = 0;
}

static void slices_beyond(struct plan *plan)
{
    op_of(plan, OP_ATTEND_BACKWARD)->slice_first = plan->slice_count;
}

static void add_uneven(struct plan *plan)
{
    op_of(plan, OP_ADD)->operand[UNARY_SOURCE].bytes -= 4;
}

static void convert_uneven(struct plan *plan)
{
    op_of(plan, OP_CONVERT)->operand[UNARY_SOURCE].bytes -= 4;
}

static void row_dot_uneven(struct plan *plan)
{
    op_of(plan, OP_ROW_DOT)->operand[ROW_DOT_O].bytes -= 4;
}

static void fill_missing(struct plan *plan)
{
    remove_op(plan, op_of(plan, OP_FILL));
}

static void fill_short(struct plan *plan)
{
    op_of(plan, OP_FILL)->operand[UNARY_DESTINATION].bytes -= 4;
}

static void convert_missing(struct plan *plan)
{
    remove_op(plan, op_of(plan, OP_CONVERT));
}

static void input_written(struct plan *plan)
{
    const struct plan_buffer *d_out = buffer_of(plan, BUFFER_INPUT_DO);
    struct op op = {.kind = OP_FILL, .phase = PHASE_BACKWARD};
    op.operand[UNARY_DESTINATION] =
        (struct region){.buffer = (int32_t)(d_out - plan->buffers), .bytes = d_out->bytes};
    append_op(plan, op);
}

static void output_short(struct plan *plan)
{
    buffer_of(plan, BUFFER_LSE)->bytes -= 4;
}

static void output_twice(struct plan *plan)
{
    buffer_of(plan, BUFFER_DQ)->role = BUFFER_INPUT_Q;
}

static void role_unknown(struct plan *plan)
{
    plan->buffers[0].role = (enum buffer_role)77;
}

static void rank_wrong(struct plan *plan)
{
    plan->rank = 2;
}

static void case_differs(struct plan *plan)
{
    plan->c.seed++;
}

static const struct fault {
    void (*make)(struct plan *plan);
    const char *text;
} faults[] = {
    {receives_more,
     "exchange 0: rank 0 sends 384 bytes in its message 0 to rank 1, which receives 388"},
    {sends_less,
     "exchange 0: rank 1 sends 380 bytes in its message 0 to rank 2, which receives 384"},
    {sends_nothing,
     "exchange 0: rank 1 sends 0 bytes in its message 0 to rank 2, which receives 384"},
    {other_peer, "exchange 0: rank 1 sends 384 bytes in its message 0 to rank 0, which receives 0"},
    {no_peer,
     "rank 1: operation 0 (exchange, forward step 0) has a transfer outside its buffer or"},
    {transfer_outside, "operation 0 (exchange, forward step 0) has a transfer outside its buffer"},
    {blocks_outside, "has a transfer outside its buffer"},
    {blocks_that_meet, "has a transfer outside its buffer"},
    {blocks_without_rows, "has a transfer outside its buffer"},
    {blocks_inside, "rank 1 sends 192 bytes in its message 0 to rank 2, which receives 384"},
    {transfers_beyond, "has slices, transfers or waits outside the plan's"},
    {exchange_too_many, "rank 0 has 4 exchanges, another rank has more"},
    {receive_over_send, "both touch bytes 0 to 384 of slot0, one writes, and nothing orders them"},
    {wait_for_later, "waits for a later operation or its own stream"},
    {wait_for_later_exchange, "waits for a later operation or its own stream"},
    {wait_for_nothing, "waits for a later operation or its own stream"},
    {wait_for_own_stream, "waits for a later operation or its own stream"},
    {operand_outside, "has an operand outside its buffer"},
    {operand_of_no_buffer, "has an operand outside its buffer"},
    {operand_negative, "has an operand outside its buffer"},
    {operand_overflows, "has an operand outside its buffer"},
    {operand_too_many, "has an operand outside its buffer"},
    {kind_unknown, "rank 1: operation 2 is of kind "},
    {stream_wrong, "is on the wrong stream"},
    {slice_of_queries_outside, "has operands or slices that do not fit to each other"},
    {slice_of_keys_outside, "has operands or slices that do not fit to each other"},
    {slice_empty, "has operands or slices that do not fit to each other"},
    {slices_beyond, "has slices, transfers or waits outside the plan's"},
    {add_uneven, "(add, backward step 1) has operands or slices that do not fit"},
    {convert_uneven, "(convert, forward step 2) has operands or slices that do not fit"},
    {row_dot_uneven, "(row dot, backward step 0) has operands or slices that do not fit"},
    {fill_missing,
     "(attend, forward step 0) reads what nothing has written: bytes 0 to 1024 of o_sum"},
    {fill_short, "reads what nothing has written: bytes 0 to 1024 of o_sum"},
    {convert_missing, "rank 1: output out of 512 bytes is not written completely"},
    {input_written, "(fill, backward step 0) writes to an input: bytes 0 to 512 of dout"},
    {output_short, "rank 1: buffer lse has 124 bytes where the case has 128"},
    {output_twice, "rank 1: there are 2 buffers of role 0 where the case has 1"},
    {role_unknown, "rank 1: buffer 0 has no known role or size"},
    {rank_wrong, "plan 1 is of rank 2 of 3, or of another case"},
    {case_differs, "plan 1 is of rank 1 of 3, or of another case"},
};

START_TEST(fault_is_reported)
{
    struct cp_case c;
    struct plans p;
    plans_even_case(3, &c);
    plans_create(&p, &c);
    ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
    faults[_i].make(p.plans[1]);
    expect_fault(&p, faults[_i].text);
    plans_destroy(&p);
}
END_TEST

// ---- one fault each, in a case with sinks, bias and largest logits ----

static void bias_row_outside(struct plan *plan)
{
    struct slice *s = &plan->slices[0];
    s->bias_row = op_of(plan, OP_ATTEND_FORWARD)->bias_rows - s->q_len + 1;
}

static void bias_row_far_outside(struct plan *plan)
{
    plan->slices[0].bias_row = INT64_MAX;
}

static void bias_column_outside(struct plan *plan)
{
    plan->slices[0].bias_column = plan->c.seqlen_kv;
}

static void bias_column_negative(struct plan *plan)
{
    plan->slices[0].bias_column = -1;
}

static void bias_rows_wrong(struct plan *plan)
{
    op_of(plan, OP_ATTEND_FORWARD)->bias_rows--;
}

static void bias_missing(struct plan *plan)
{
    op_of(plan, OP_ATTEND_FORWARD)->operand[ATTEND_BIAS].bytes = 0;
}

static void dbias_short(struct plan *plan)
{
    op_of(plan, OP_ATTEND_BACKWARD)->operand[ATTEND_DBIAS].bytes -= 4;
}

static void dbias_output_short(struct plan *plan)
{
    buffer_of(plan, BUFFER_DBIAS)->bytes -= 2;
}

static void max_missing(struct plan *plan)
{
    op_of(plan, OP_ATTEND_FORWARD)->operand[ATTEND_MAX].bytes = 0;
}

static void max_uneven(struct plan *plan)
{
    op_of(plan, OP_MAX)->operand[UNARY_SOURCE].bytes -= 4;
}

static void sinks_short(struct plan *plan)
{
    op_of(plan, OP_FILL_HEADS)->operand[UNARY_SOURCE].bytes -= 4;
}

static void sinks_not_filled(struct plan *plan)
{
    remove_op(plan, op_of(plan, OP_FILL_HEADS));
}

static void sink_gradient_uneven(struct plan *plan)
{
    op_of(plan, OP_SINK_GRAD)->operand[SINK_GRAD_D].bytes -= 4;
}

static void sink_gradient_with_keys(struct plan *plan)
{
    plan->slices[op_of(plan, OP_SINK_GRAD)->slice_first].kv_len = 1;
}

static void sink_gradient_outside(struct plan *plan)
{
    plan->slices[op_of(plan, OP_SINK_GRAD)->slice_first].q_row = plan->c.seqlen_q;
}

static void heads_wrong(struct plan *plan)
{
    op_of(plan, OP_FILL_HEADS)->heads.kv_first++;
}

static void sinks_missing(struct plan *plan)
{
    buffer_of(plan, BUFFER_INPUT_SINK)->role = BUFFER_SCRATCH;
}

#define UNFIT "has operands or slices that do not fit to each other"
static const struct fault full_faults[] = {
    {bias_row_outside, UNFIT},
    {bias_row_far_outside, UNFIT},
    {bias_column_outside, UNFIT},
    {bias_column_negative, UNFIT},
    {bias_rows_wrong, UNFIT},
    {bias_missing, UNFIT},
    {dbias_short, "(attend backward, backward step 0) " UNFIT},
    {dbias_output_short, "buffer dbias has 6142 bytes where the case has 6144"},
    {max_missing, "(attend, forward step 0) " UNFIT},
    {max_uneven, UNFIT},
    {sinks_short, "(fill heads, forward step 0) " UNFIT},
    {sinks_not_filled, "reads what nothing has written"},
    {sink_gradient_uneven, "(sink gradient, backward step 0) " UNFIT},
    {sink_gradient_with_keys, "(sink gradient, backward step 0) " UNFIT},
    {sink_gradient_outside, "(sink gradient, backward step 0) " UNFIT},
    {heads_wrong, "(fill heads, forward step 0) " UNFIT},
    {sinks_missing, "there are 0 buffers of role"},
};

START_TEST(fault_of_the_extras_is_reported)
{
    struct cp_case c;
    struct plans p;
    plans_full_case(COMM_P2P, 3, &c);
    plans_create(&p, &c);
    ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
    full_faults[_i].make(p.plans[1]);
    expect_fault(&p, full_faults[_i].text);
    plans_destroy(&p);
}
END_TEST

// ---- regions in pieces ----

// Marks the bytes of a buffer that an operation receives. Returns whether one was marked before.
static bool receives_mark(const struct plan *plan, const struct op *op, int32_t buffer, char *taken)
{
    bool overlap = false;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct region *r = &plan->transfers[op->transfer_first + i].receive;
        for (int64_t n = 0; r->buffer == buffer && n < region_total(r); n++)
            overlap |= taken[region_piece(r, n / r->bytes) + n % r->bytes]++ > 0;
    }
    return overlap;
}

// True if two receives of an exchange and of the copies after it share a byte. Compares all bytes.
static bool receives_overlap(const struct plan *plan, const struct op *op)
{
    const struct op *exchange = op->kind == OP_COPY ? op - 1 : op;
    bool overlap = false;
    for (int32_t buffer = 0; buffer < plan->buffer_count; buffer++) {
        char *taken = calloc((size_t)plan->buffers[buffer].bytes + 1, 1);
        overlap |= receives_mark(plan, exchange, buffer, taken);
        if (exchange + 1 < plan->ops + plan->op_count && exchange[1].kind == OP_COPY)
            overlap |= receives_mark(plan, exchange + 1, buffer, taken);
        free(taken);
    }
    return overlap;
}

// Reduces the received pieces to a few rows and moves one of them through its buffer.
START_TEST(pieces_that_meet_are_found)
{
    struct cp_case c;
    struct plans p;
    int met = 0, apart = 0;
    plans_full_case(COMM_A2A, 3, &c);
    c.seqlen_q = c.seqlen_kv = 24;
    c.batch = 2;
    plans_create(&p, &c);
    struct plan *plan = p.plans[1];
    for (int32_t i = 0; i < plan->transfer_count; i++)
        if (plan->transfers[i].receive.rows > 4)
            plan->transfers[i].receive.rows = 4;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        for (int32_t k = 0; k < op->transfer_count; k++) {
            struct region *r = &plan->transfers[op->transfer_first + k].receive;
            int64_t kept = r->offset, room = plan->buffers[r->buffer].bytes - region_extent(r);
            for (r->offset = 0; r->rows > 1 && r->offset <= room; r->offset += 2) {
                struct error error = {.text = ""};
                bool overlap = receives_overlap(plan, op);
                (void)!plan_check_alone(plan, &error);
                ck_assert_int_eq(strstr(error.text, "both touch") != NULL, overlap);
                met += overlap;
                apart += !overlap;
            }
            r->offset = kept;
        }
    }
    ck_assert_int_gt(met, 50);
    ck_assert_int_gt(apart, 50);
    plans_destroy(&p);
}
END_TEST

START_TEST(empty_worlds_are_refused)
{
    struct plan *plans[1] = {NULL};
    ck_assert_int_eq(plan_check(plans, 0, NULL), STATUS_INTERNAL);
    ck_assert_int_eq(plan_check(plans, WORLD_SIZE_MAX + 1, NULL), STATUS_INTERNAL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan_check");
    TCase *waits = tcase_create("waits");
    tcase_set_timeout(waits, 60);
    tcase_add_test(waits, no_wait_can_be_left_out);
    suite_add_tcase(s, waits);
    TCase *one = tcase_create("faults");
    tcase_add_loop_test(one, fault_is_reported, 0, sizeof faults / sizeof faults[0]);
    tcase_add_loop_test(one, fault_of_the_extras_is_reported, 0,
                        sizeof full_faults / sizeof full_faults[0]);
    tcase_add_test(one, empty_worlds_are_refused);
    tcase_add_test(one, pieces_that_meet_are_found);
    suite_add_tcase(s, one);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
