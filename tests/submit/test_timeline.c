// SPDX-License-Identifier: Apache-2.0
// The predicted timeline of plans: order, matching exchanges, durations, sums. The picture of it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/xpath.h>

#include "client/submit/show/svg.h"
#include "plan/cost.h"
#include "plan/timeline.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"

// Rates for round times, without overhead.
static const struct timeline_rates plain = {
    .flops = 1e9, .memory_bytes = 1e9, .link_bytes = 1e9, .node_bytes = 1e9, .overhead_s = 0};

static struct timeline *play(const struct plans *p, const struct timeline_rates *rates)
{
    struct timeline *timeline = NULL;
    struct error error = {.text = ""};
    ck_assert_msg(!timeline_create(p->plans, p->size, rates, &timeline, &error), "%s", error.text);
    ck_assert_int_eq(timeline->world_size, p->size);
    return timeline;
}

static void te_case(struct cp_case *c, enum case_comm comm, int world_size)
{
    case_init(c);
    c->comm = comm;
    c->world_size = world_size;
    c->seqlen_q = c->seqlen_kv = 256;
}

// ---- order ------------------------------------------------------------------------------------

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 + 1e-9 * fabs(b);
}

// Returns the latest end of the operations that this one waits for; 0 if it waits for none.
static double ready(const struct plan *plan, const struct timeline_span *spans, int32_t index)
{
    const struct op *op = &plan->ops[index];
    double latest = 0;
    for (int32_t i = index - 1; i >= 0; i--)
        if (plan->ops[i].stream == op->stream && spans[i].end > latest)
            latest = spans[i].end;
    for (int32_t i = 0; i < op->wait_count; i++)
        if (spans[plan->waits[op->wait_first + i]].end > latest)
            latest = spans[plan->waits[op->wait_first + i]].end;
    return latest;
}

static int exchanges_before(const struct plan *plan, int32_t index)
{
    int count = 0;
    for (int32_t i = 0; i < index; i++)
        count += plan->ops[i].kind == OP_EXCHANGE;
    return count;
}

static const struct timeline_span *exchange(const struct plans *p, const struct timeline *timeline,
                                            int rank, int number)
{
    const struct plan *plan = p->plans[rank];
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE && number-- == 0)
            return &timeline->ranks[rank].spans[i];
    ck_abort_msg("rank %d has too few exchanges", rank);
    return NULL;
}

// Returns when the exchange is posted on this rank and on all its peers.
static double all_posted(const struct plans *p, const struct timeline *timeline, int rank,
                         int32_t index)
{
    const struct plan *plan = p->plans[rank];
    const struct op *op = &plan->ops[index];
    double latest = timeline->ranks[rank].spans[index].start;
    for (int32_t i = 0; op->kind == OP_EXCHANGE && i < op->transfer_count; i++) {
        int peer = plan->transfers[op->transfer_first + i].peer;
        double start = exchange(p, timeline, peer, exchanges_before(plan, index))->start;
        if (start > latest)
            latest = start;
    }
    return latest;
}

static void check_op(const struct plans *p, const struct timeline *timeline, int rank,
                     int32_t index)
{
    const struct plan *plan = p->plans[rank];
    const struct timeline_span *spans = timeline->ranks[rank].spans, *span = &spans[index];
    ck_assert(close_to(span->start, ready(plan, spans, index)));
    ck_assert(span->end >= span->moves && span->moves >= span->start);
    ck_assert(close_to(span->moves, all_posted(p, timeline, rank, index)));
    if (span->start > 0) {
        ck_assert_int_ge(span->after, 0);
        ck_assert(close_to(spans[span->after].end, span->start));
    } else {
        ck_assert_int_eq(span->after, -1);
    }
    if (span->last == rank)
        ck_assert(close_to(span->moves, span->start));
    else
        ck_assert(close_to(exchange(p, timeline, span->last, exchanges_before(plan, index))->start,
                           span->moves));
}

static const enum case_comm comms[] = {COMM_P2P, COMM_ALL_GATHER, COMM_A2A, COMM_A2A_P2P};

START_TEST(operations_start_when_what_they_wait_for_ends)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, comms[_i], 4);
    c.sharding = SHARDING_CONTIGUOUS; // ranks have unequal work and wait for each other
    plans_create(&p, &c);
    struct timeline *timeline = play(&p, &plain);
    bool waited = false;
    for (int r = 0; r < 4; r++) {
        for (int32_t i = 0; i < p.plans[r]->op_count; i++) {
            check_op(&p, timeline, r, i);
            waited = waited || timeline->ranks[r].spans[i].last != r;
            ck_assert(timeline->ranks[r].spans[i].end <= timeline->ranks[r].end);
        }
        ck_assert(timeline->ranks[r].end <= timeline->end);
    }
    // With a2a each rank has some of the heads and all tokens, so all ranks have equal work.
    ck_assert_int_eq(waited, comms[_i] != COMM_A2A);
    timeline_destroy(timeline);
    plans_destroy(&p);
}
END_TEST

START_TEST(plans_that_do_not_fit_never_end)
{
    struct plans p;
    struct cp_case c;
    struct timeline *timeline = NULL;
    struct error error = {.text = ""};
    te_case(&c, COMM_P2P, 2);
    plans_create(&p, &c);
    int32_t count = p.plans[1]->op_count;
    p.plans[1]->op_count = 0;
    ck_assert_int_eq(timeline_create(p.plans, 2, &plain, &timeline, &error), STATUS_INTERNAL);
    ck_assert_msg(strstr(error.text, "of rank 0 waits for an operation that never ends"), "%s",
                  error.text);
    ck_assert_ptr_null(timeline);
    p.plans[1]->op_count = count;
    plans_destroy(&p);
}
END_TEST

// ---- durations and sums -----------------------------------------------------------------------

START_TEST(an_operation_takes_what_its_work_takes)
{
    struct plans p;
    struct cp_case c;
    struct case_cost cost;
    struct timeline_rates rates = {
        .flops = 1e6, .memory_bytes = 1e12, .link_bytes = 1e12, .overhead_s = 0.25};
    te_case(&c, COMM_P2P, 1);
    c.training = false;
    plans_create(&p, &c);
    struct timeline *timeline = play(&p, &rates);
    const struct plan *plan = p.plans[0];
    case_cost(&c, &cost);
    ck_assert(close_to(timeline->ranks[0].flops, cost.forward));
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct timeline_span *span = &timeline->ranks[0].spans[i];
        double took = span->end - span->start;
        if (plan->ops[i].kind == OP_ATTEND_FORWARD)
            ck_assert(close_to(took, 0.25 + op_flops(plan, &plan->ops[i]) / 1e6));
        else if (plan->ops[i].kind != OP_EXCHANGE)
            ck_assert(close_to(took, 0.25 + (double)timeline_bytes(&plan->ops[i]) / 1e12));
    }
    ck_assert_double_gt(timeline->end, cost.forward / 1e6);
    ck_assert(close_to(timeline->ranks[0].busy[STREAM_COMPUTE], timeline->end));
    ck_assert_int_eq(timeline->ranks[0].sent, 0);
    timeline_destroy(timeline);
    plans_destroy(&p);
}
END_TEST

START_TEST(bytes_are_what_is_read_and_written)
{
    struct op op = {.kind = OP_ADD};
    op.operand[UNARY_SOURCE] = (struct region){.bytes = 100, .rows = 3, .stride = 500};
    op.operand[UNARY_DESTINATION] = (struct region){.bytes = 300};
    ck_assert_int_eq(timeline_bytes(&op), 300 + 2 * 300);
    op.kind = OP_CONVERT;
    ck_assert_int_eq(timeline_bytes(&op), 300 + 300);
}
END_TEST

// In a forward ring of two ranks each rank sends its keys and values once.
START_TEST(an_exchange_takes_what_its_bytes_take)
{
    struct plans p;
    struct cp_case c;
    struct timeline_rates rates = {
        .flops = 1e15, .memory_bytes = 1e15, .link_bytes = 1e6, .overhead_s = 0};
    te_case(&c, COMM_P2P, 2);
    c.training = false;
    plans_create(&p, &c);
    struct timeline *timeline = play(&p, &rates);
    int64_t bytes = 2 * 128 * 8 * (128 + 128) * 2; // batch, tokens, heads, dimensions, bf16
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(timeline->ranks[r].sent, bytes);
        ck_assert(close_to(timeline->ranks[r].busy[STREAM_COMM], (double)bytes / 1e6));
    }
    ck_assert_double_ge(timeline->end, (double)bytes / 1e6);
    ck_assert_double_le(timeline->end, (double)bytes / 1e6 * 1.001);
    timeline_destroy(timeline);
    plans_destroy(&p);
}
END_TEST

// A ring of four ranks on one, two and four nodes.
START_TEST(messages_to_another_node_use_its_link)
{
    struct plans p;
    struct cp_case c;
    struct timeline_rates rates = {
        .flops = 1e15, .memory_bytes = 1e15, .link_bytes = 1e6, .node_bytes = 1e5, .overhead_s = 0};
    int64_t bytes = 2 * 64 * 8 * (128 + 128) * 2; // a rank has a quarter of the 256 tokens
    for (int nodes = 1; nodes <= 4; nodes *= 2) {
        te_case(&c, COMM_P2P, 4);
        c.training = false;
        c.nodes = nodes;
        plans_create(&p, &c);
        struct timeline *timeline = play(&p, &rates);
        double rate = nodes == 1 ? 1e6 : 1e5;
        for (int r = 0; r < 4; r++) {
            // With two nodes a rank sends to one node and receives from the other.
            ck_assert_int_eq(timeline->ranks[r].sent, 3 * bytes);
            ck_assert(close_to(timeline->ranks[r].busy[STREAM_COMM], 3 * (double)bytes / rate));
        }
        timeline_destroy(timeline);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(a_faster_machine_is_not_slower)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, comms[_i], 4);
    plans_create(&p, &c);
    struct timeline *slow = play(&p, &plain);
    for (int i = 0; i < 3; i++) {
        struct timeline_rates rates = plain;
        double *const faster[] = {&rates.flops, &rates.memory_bytes, &rates.link_bytes};
        *faster[i] *= 10;
        struct timeline *fast = play(&p, &rates);
        ck_assert_double_le(fast->end, slow->end);
        timeline_destroy(fast);
    }
    struct timeline_rates late = plain;
    late.overhead_s = 1;
    struct timeline *later = play(&p, &late);
    ck_assert_double_gt(later->end, slow->end + 1);
    timeline_destroy(later);
    timeline_destroy(slow);
    plans_destroy(&p);
}
END_TEST

START_TEST(the_forward_phase_ends_before_the_backward_one)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, COMM_P2P, 2);
    plans_create(&p, &c);
    struct timeline *timeline = play(&p, &plain);
    double last = 0;
    for (int32_t i = 0; i < p.plans[0]->op_count; i++)
        if (p.plans[0]->ops[i].phase == PHASE_FORWARD && timeline->ranks[0].spans[i].end > last)
            last = timeline->ranks[0].spans[i].end;
    ck_assert(close_to(timeline->ranks[0].forward_end, last));
    ck_assert_double_lt(timeline->ranks[0].forward_end, timeline->ranks[0].end);
    timeline_destroy(timeline);
    plans_destroy(&p);
}
END_TEST

// ---- the picture ------------------------------------------------------------------------------

static xmlDoc *draw(const struct plans *p)
{
    char *text = NULL;
    size_t size = 0;
    struct timeline_rates rates;
    timeline_rates_init(&rates);
    struct timeline *timeline = play(p, &rates);
    FILE *memory = open_memstream(&text, &size);
    svg_draw(memory, &(struct svg_panel){p->plans, timeline}, 1, &rates);
    ck_assert_int_eq(fclose(memory), 0);
    xmlDoc *document = xmlReadMemory(text, (int)size, "svg", NULL, XML_PARSE_NONET);
    ck_assert_msg(document != NULL, "not well-formed: %.200s", text);
    free(text);
    timeline_destroy(timeline);
    return document;
}

static double evaluate(xmlDoc *document, const char *expression)
{
    xmlXPathContext *context = xmlXPathNewContext(document);
    xmlXPathObject *object = xmlXPathEvalExpression((const xmlChar *)expression, context);
    ck_assert_ptr_nonnull(object);
    double value = xmlXPathCastToNumber(object);
    xmlXPathFreeObject(object);
    xmlXPathFreeContext(context);
    return value;
}

// Counts the elements of a class, less the `legend` elements that are in the legend.
static int count_class(xmlDoc *document, const char *class, int legend)
{
    char expression[96];
    snprintf(expression, sizeof(expression), "count(//*[@class='%s'])", class);
    return (int)evaluate(document, expression) - legend;
}

static int count_ops(const struct plans *p, enum op_kind kind)
{
    int count = 0;
    for (int r = 0; r < p->size; r++)
        for (int32_t i = 0; i < p->plans[r]->op_count; i++) {
            const struct op *op = &p->plans[r]->ops[i];
            count += op->kind == kind && (kind != OP_EXCHANGE || op->transfer_count > 0);
        }
    return count;
}

static int count_sends(const struct plans *p)
{
    int count = 0;
    for (int r = 0; r < p->size; r++)
        for (int32_t i = 0; i < p->plans[r]->transfer_count; i++) {
            const struct transfer *t = &p->plans[r]->transfers[i];
            count += t->peer != r && t->send.bytes > 0;
        }
    return count;
}

START_TEST(the_picture_has_every_operation_and_every_message)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, comms[_i], 4);
    plans_create(&p, &c);
    xmlDoc *document = draw(&p);
    ck_assert_int_gt(count_ops(&p, OP_ATTEND_BACKWARD), 0);
    ck_assert_int_eq(count_class(document, "forward", 1), count_ops(&p, OP_ATTEND_FORWARD));
    ck_assert_int_eq(count_class(document, "backward", 1), count_ops(&p, OP_ATTEND_BACKWARD));
    ck_assert_int_eq(count_class(document, "exchange", 1), count_ops(&p, OP_EXCHANGE));
    ck_assert_int_eq(count_class(document, "message", 1), count_sends(&p));
    ck_assert_int_eq(count_class(document, "phase", 1), 4);
    ck_assert_int_gt(count_class(document, "wait", 1), 0);
    ck_assert_int_eq((int)evaluate(document, "count(//*[@class='rank' and text()='rank 3'])"), 2);
    xmlFreeDoc(document);
    plans_destroy(&p);
}
END_TEST

#define BOXES "//*[local-name()='g']/*[local-name()='rect']"

// All boxes lie between the start of the lanes and the right edge.
START_TEST(boxes_lie_inside_the_lanes)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, comms[_i], 4);
    c.sharding = SHARDING_CONTIGUOUS;
    plans_create(&p, &c);
    xmlDoc *document = draw(&p);
    ck_assert_int_eq((int)evaluate(document, "count(" BOXES "[@x < 119.9])"), 0);
    ck_assert_int_eq((int)evaluate(document, "count(" BOXES "[@x + @width > 1577])"), 0);
    ck_assert_int_gt((int)evaluate(document, "count(" BOXES "[@x + @width > 1575])"), 0);
    ck_assert_int_gt((int)evaluate(document, "count(" BOXES ")"), 20);
    xmlFreeDoc(document);
    plans_destroy(&p);
}
END_TEST

START_TEST(exchanges_that_wait_are_striped)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, COMM_P2P, 4);
    plans_create(&p, &c);
    xmlDoc *document = draw(&p);
    ck_assert_int_eq(count_class(document, "posted", 1), 0);
    xmlFreeDoc(document);
    plans_destroy(&p);
    c.sharding = SHARDING_CONTIGUOUS;
    c.seqlen_q = c.seqlen_kv = 4096;
    plans_create(&p, &c);
    document = draw(&p);
    ck_assert_int_gt(count_class(document, "posted", 1), 0);
    xmlFreeDoc(document);
    plans_destroy(&p);
}
END_TEST

START_TEST(a_large_world_has_no_messages)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, COMM_ALL_GATHER, SVG_MESSAGES_RANKS_MAX + 1);
    plans_create(&p, &c);
    xmlDoc *document = draw(&p);
    ck_assert_int_gt(count_sends(&p), 0);
    ck_assert_int_eq(count_class(document, "message", 0), 0);
    ck_assert_int_eq(count_class(document, "exchange", 1), count_ops(&p, OP_EXCHANGE));
    xmlFreeDoc(document);
    plans_destroy(&p);
}
END_TEST

START_TEST(texts_of_the_case_cannot_break_the_picture)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, COMM_P2P, 1);
    ck_assert(!case_set(&c, "model", "<a href='x'>&\"]]>", NULL));
    plans_create(&p, &c);
    xmlDoc *document = draw(&p);
    ck_assert_int_eq((int)evaluate(document, "count(//*[starts-with(text(), \"<a href='x'>&\")])"),
                     1);
    ck_assert_int_eq((int)evaluate(document, "count(//*[local-name()='a'])"), 0);
    xmlFreeDoc(document);
    plans_destroy(&p);
}
END_TEST

// A case without tokens takes no time. Its picture is drawn without a division by zero.
START_TEST(a_case_without_tokens_can_be_drawn)
{
    struct plans p;
    struct cp_case c;
    te_case(&c, COMM_P2P, 2);
    c.seqlen_q = c.seqlen_kv = 0;
    plans_create(&p, &c);
    struct timeline *timeline = play(&p, &plain);
    ck_assert_double_eq(timeline->end, 0);
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    svg_draw(memory, &(struct svg_panel){p.plans, timeline}, 1, &plain);
    ck_assert_int_eq(fclose(memory), 0);
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "inf"));
    free(text);
    timeline_destroy(timeline);
    plans_destroy(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *order = tcase_create("order"), *work = tcase_create("work"),
          *picture = tcase_create("picture");
    int ways = (int)(sizeof(comms) / sizeof(comms[0]));
    tcase_add_loop_test(order, operations_start_when_what_they_wait_for_ends, 0, ways);
    tcase_add_test(order, plans_that_do_not_fit_never_end);
    tcase_add_test(work, an_operation_takes_what_its_work_takes);
    tcase_add_test(work, bytes_are_what_is_read_and_written);
    tcase_add_test(work, an_exchange_takes_what_its_bytes_take);
    tcase_add_test(work, messages_to_another_node_use_its_link);
    tcase_add_loop_test(work, a_faster_machine_is_not_slower, 0, ways);
    tcase_add_test(work, the_forward_phase_ends_before_the_backward_one);
    tcase_add_loop_test(picture, the_picture_has_every_operation_and_every_message, 0, ways);
    tcase_add_loop_test(picture, boxes_lie_inside_the_lanes, 0, ways);
    tcase_add_test(picture, exchanges_that_wait_are_striped);
    tcase_add_test(picture, a_large_world_has_no_messages);
    tcase_add_test(picture, texts_of_the_case_cannot_break_the_picture);
    tcase_add_test(picture, a_case_without_tokens_can_be_drawn);
    suite_add_tcase(suite, order);
    suite_add_tcase(suite, work);
    suite_add_tcase(suite, picture);
    return runner_run(suite);
}
