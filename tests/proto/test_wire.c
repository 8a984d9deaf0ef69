// SPDX-License-Identifier: Apache-2.0
// The codec: an encoded message is decoded unchanged, within the memory budget and without leaks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/scratch.h"
#include "tests/support/runner.h"
#include "tests/support/wire_samples.h"

static struct error error;

// ---- counting and failing allocations -----------------------------------------------------------

// The linker redirects calls of the codec and of the test framework to these functions. So a test
// compares differences of the counts. A chosen call can fail.
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void __real_free(void *pointer);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void __wrap_free(void *pointer);

static int allocations_until_failure = -1; // -1: none fails
static int allocations_alive;
static size_t allocated_bytes;

static bool allocation_fails(size_t size)
{
    allocated_bytes += size;
    if (allocations_until_failure < 0 || allocations_until_failure-- > 0) {
        allocations_alive++;
        return false;
    }
    return true;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return allocation_fails(count * size) ? NULL : __real_calloc(count, size);
}

void __wrap_free(void *pointer)
{
    allocations_alive -= pointer != NULL;
    __real_free(pointer);
}

// ---- round trips --------------------------------------------------------------------------------

static struct wire_request request_of(enum wire_method method, struct sample *s)
{
    struct wire_request request;
    memset(&request, 0, sizeof request);
    request.version = WIRE_VERSION;
    request.method = method;
    sample_id(s, &request.id);
    request.timeout_ns = (uint64_t)sample_range(s, 0, (int64_t)TIMEOUT_MAX_NS);
    request.run_timeout_ns = (uint64_t)sample_range(s, 0, (int64_t)TIMEOUT_MAX_NS);
    request.cancel_on_disconnect = sample_range(s, 0, 1) == 1;
    request.patience_ns = sample_range(s, 0, 3) == 0 ? PATIENCE_ENDLESS
                                                     : (uint64_t)sample_range(s, 0, 2) * 1000000000;
    return request;
}

static void assert_request_survives(const struct wire_request *sent, struct wire_request *got)
{
    void *data;
    size_t size;
    ck_assert_msg(wire_encode_request(sent, &data, &size, &error) == STATUS_OK, "%s", error.text);
    size_t content = sent->method != METHOD_RUN ? 0
                     : sent->is_job             ? sizeof(sent->job)
                                                : case_bytes(&sent->run);
    ck_assert_uint_lt(size, 1024 + content);
    enum status status = wire_decode_request(data, size, got, &error);
    free(data);
    ck_assert_msg(status == STATUS_OK, "%s", error.text);
    ck_assert_uint_eq(got->version, sent->version);
    ck_assert_mem_eq(&got->id, &sent->id, sizeof got->id);
    ck_assert_uint_eq(got->timeout_ns, sent->timeout_ns);
    ck_assert_uint_eq(got->run_timeout_ns, sent->run_timeout_ns);
    ck_assert_uint_eq(got->patience_ns, sent->patience_ns);
    ck_assert_int_eq(got->cancel_on_disconnect, sent->cancel_on_disconnect);
    ck_assert_int_eq(got->method, sent->method);
}

START_TEST(random_cases_survive)
{
    struct sample s = {1};
    for (int i = 0; i < 3000; i++) {
        struct wire_request sent = request_of(METHOD_RUN, &s), got;
        sample_case(&s, &sent.run);
        assert_request_survives(&sent, &got);
        ck_assert_mem_eq(&got.run, &sent.run, sizeof got.run);
    }
}
END_TEST

START_TEST(random_jobs_of_other_kinds_survive)
{
    struct sample s = {3};
    for (int i = 0; i < 300; i++) {
        struct wire_request sent = request_of(METHOD_RUN, &s), got;
        sent.is_job = true;
        sample_job(&s, &sent.job);
        assert_request_survives(&sent, &got);
        ck_assert(got.is_job);
        ck_assert_mem_eq(&got.job, &sent.job, sizeof got.job);
    }
}
END_TEST

static void copy_field(const struct case_field *field, const struct cp_case *from,
                       struct cp_case *to)
{
    if (field->kind != FIELD_LIST) {
        memcpy((char *)to + field->offset, (const char *)from + field->offset, field->size);
        return;
    }
    int32_t count;
    const int32_t *values = case_list(from, field->list, &count);
    case_list_set(to, field->list, values, count);
}

// A random case with one changed field arrives with this change.
START_TEST(every_field_of_a_case_is_carried)
{
    const struct case_field *field = &case_fields()[_i];
    struct sample s = {(uint64_t)_i};
    struct wire_request a = request_of(METHOD_RUN, &s), b = a, got_a, got_b;
    int tries = 0;
    do {
        struct cp_case other;
        sample_case(&s, &a.run);
        sample_case(&s, &other);
        b.run = a.run;
        copy_field(field, &other, &b.run);
        ck_assert_int_lt(tries++, 10000);
    } while (case_check(&b.run, NULL) != STATUS_OK ||
             memcmp((char *)&a.run + field->offset, (char *)&b.run + field->offset, field->size) ==
                 0);
    assert_request_survives(&a, &got_a);
    assert_request_survives(&b, &got_b);
    ck_assert_mem_ne(&got_a.run, &got_b.run, sizeof got_a.run);
    ck_assert_mem_eq(&got_b.run, &b.run, sizeof b.run);
}
END_TEST

START_TEST(other_requests_survive)
{
    struct sample s = {2};
    struct wire_request sent = request_of(METHOD_DESCRIBE, &s), got;
    assert_request_survives(&sent, &got);
    sent = request_of(METHOD_STATUS, &s);
    assert_request_survives(&sent, &got);
    sent = request_of(METHOD_CANCEL, &s);
    sample_id(&s, &sent.cancel);
    assert_request_survives(&sent, &got);
    ck_assert_mem_eq(&got.cancel, &sent.cancel, sizeof sent.cancel);
    for (int kind = ORDER_DRAIN_DEVICE; kind <= ORDER_RELOAD; kind++) {
        sent = request_of(METHOD_ORDER, &s);
        sent.order =
            (struct wire_order){.kind = (enum wire_order_kind)kind, .device = 16 * kind - 1};
        assert_request_survives(&sent, &got);
        ck_assert_int_eq(got.order.kind, kind);
        ck_assert_int_eq(got.order.device, 16 * kind - 1);
    }
    for (int i = 0; i < 100; i++) {
        sent = request_of(METHOD_WATCH, &s);
        sent.watch = (struct wire_watch){.stream = sample_bits(&s),
                                         .after = sample_bits(&s),
                                         .recent = (int32_t)sample_range(&s, 0, EVENTS_KEPT),
                                         .wait_ns = sample_bits(&s) % WATCH_WAIT_MAX_NS,
                                         .kinds = sample_bits(&s)};
        assert_request_survives(&sent, &got);
        ck_assert_mem_eq(&got.watch, &sent.watch, sizeof sent.watch);
    }
}
END_TEST

// Encodes and decodes a reply, and compares it. The caller compares the lists.
static struct wire_reply reply_echo(const struct wire_reply *sent)
{
    struct wire_reply got, flat = *sent;
    void *data;
    size_t size;
    ck_assert_msg(wire_encode_reply(sent, &data, &size, &error) == STATUS_OK, "%s", error.text);
    enum status status = wire_decode_reply(data, size, &got, &error);
    free(data);
    ck_assert_msg(status == STATUS_OK, "%s", error.text);
    flat.result.ranks = got.result.ranks;
    flat.failure.ranks = got.failure.ranks;
    flat.pools.pools = got.pools.pools;
    ck_assert_mem_eq(&flat.result, &got.result, sizeof got.result);
    ck_assert_mem_eq(&flat.failure, &got.failure, sizeof got.failure);
    ck_assert_mem_eq(&flat.description, &got.description, sizeof got.description);
    ck_assert_int_eq(flat.pools.pool_count, got.pools.pool_count);
    ck_assert_mem_eq(&flat.id, &got.id, sizeof got.id);
    ck_assert_str_eq(flat.message, got.message);
    ck_assert_int_eq(flat.status, got.status);
    ck_assert_int_eq(flat.method, got.method);
    return got;
}

START_TEST(results_survive)
{
    struct sample s = {3};
    for (int i = 0; i < 200; i++) {
        struct wire_reply sent, got;
        sample_reply(&s, METHOD_RUN, STATUS_OK, &sent);
        got = reply_echo(&sent);
        for (int rank = 0; rank < sent.result.world_size; rank++)
            ck_assert_mem_eq(&got.result.ranks[rank], &sent.result.ranks[rank],
                             sizeof *got.result.ranks);
        wire_reply_fini(&sent);
        wire_reply_fini(&got);
    }
}
END_TEST

START_TEST(failures_survive)
{
    struct sample s = {4};
    for (int i = 0; i < 200; i++) {
        struct wire_reply sent, got;
        sample_reply(&s, i % 4 ? METHOD_RUN : 0,
                     (enum status)sample_range(&s, STATUS_CANCELLED, STATUS_UNAUTHENTICATED),
                     &sent);
        got = reply_echo(&sent);
        for (int rank = 0; rank < sent.failure.world_size; rank++)
            ck_assert_mem_eq(&got.failure.ranks[rank], &sent.failure.ranks[rank],
                             sizeof *got.failure.ranks);
        wire_reply_fini(&sent);
        wire_reply_fini(&got);
    }
}
END_TEST

START_TEST(statuses_survive)
{
    struct sample s = {5};
    for (int i = 0; i < 200; i++) {
        struct wire_reply sent, got;
        sample_reply(&s, METHOD_STATUS, STATUS_OK, &sent);
        got = reply_echo(&sent);
        sent.pools.pool_count = got.pools.pool_count;
        ck_assert_mem_eq(sent.pools.pools, got.pools.pools,
                         (size_t)sent.pools.pool_count * sizeof *sent.pools.pools);
        ck_assert_int_eq(sent.pools.open_count, got.pools.open_count);
        ck_assert_mem_eq(sent.pools.open, got.pools.open,
                         (size_t)sent.pools.open_count * sizeof *sent.pools.open);
        ck_assert_uint_eq(sent.pools.refused, got.pools.refused);
        ck_assert_uint_eq(sent.pools.uptime_ns, got.pools.uptime_ns);
        ck_assert_int_eq(sent.pools.draining, got.pools.draining);
        wire_reply_fini(&sent);
        wire_reply_fini(&got);
    }
}
END_TEST

START_TEST(events_survive)
{
    struct sample s = {9};
    for (int i = 0; i < 200; i++) {
        struct wire_reply sent, got;
        sample_reply(&s, METHOD_WATCH, STATUS_OK, &sent);
        got = reply_echo(&sent);
        ck_assert_int_eq(sent.events.count, got.events.count);
        ck_assert_mem_eq(sent.events.list, got.events.list,
                         (size_t)sent.events.count * sizeof *sent.events.list);
        ck_assert_uint_eq(sent.events.stream, got.events.stream);
        ck_assert_uint_eq(sent.events.last, got.events.last);
        ck_assert_uint_eq(sent.events.lost, got.events.lost);
        wire_reply_fini(&sent);
        wire_reply_fini(&got);
    }
}
END_TEST

START_TEST(other_replies_survive)
{
    struct sample s = {6};
    for (int i = 0; i < 200; i++) {
        struct wire_reply sent, got;
        sample_reply(&s, i % 2 ? METHOD_DESCRIBE : METHOD_CANCEL, STATUS_OK, &sent);
        got = reply_echo(&sent);
        wire_reply_fini(&got);
    }
}
END_TEST

START_TEST(the_largest_replies_fit)
{
    struct wire_reply sent = {.version = WIRE_VERSION, .method = METHOD_RUN}, got;
    sample_result_largest(&sent.result);
    got = reply_echo(&sent);
    wire_reply_fini(&got);
    wire_reply_fini(&sent);

    sent = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_WATCH};
    sample_events_largest(&sent.events);
    got = reply_echo(&sent);
    wire_reply_fini(&got);
    wire_reply_fini(&sent);

    sent = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_RUN};
    sent.status = STATUS_ABORTED;
    sample_failure_largest(&sent.failure);
    got = reply_echo(&sent);
    wire_reply_fini(&got);
    wire_reply_fini(&sent);
}
END_TEST

START_TEST(unprintable_texts_go_out_printable)
{
    struct sample s = {7};
    struct wire_reply sent = {.version = WIRE_VERSION, .status = STATUS_INTERNAL}, got;
    strcpy(sent.message, "caf\xc3\xa9\n\x01 ok");
    sample_failure(&s, 1, &sent.failure);
    strcpy(sent.failure.ranks[0].stderr_tail, "one\n\ttwo\r\x7f");
    sent.failure.ranks[0].state = '\0';

    void *data;
    size_t size;
    ck_assert_int_eq(wire_encode_reply(&sent, &data, &size, &error), STATUS_OK);
    ck_assert_int_eq(wire_decode_reply(data, size, &got, &error), STATUS_OK);
    free(data);
    ck_assert_str_eq(got.message, "caf???? ok");
    ck_assert_str_eq(got.failure.ranks[0].stderr_tail, "one\n\ttwo??");
    ck_assert_int_eq(got.failure.ranks[0].state, '?');
    wire_reply_fini(&sent);
    wire_reply_fini(&got);
}
END_TEST

START_TEST(invalid_values_are_not_encoded)
{
    void *data;
    size_t size;
    struct wire_request request = {.version = WIRE_VERSION};
    ck_assert_int_eq(wire_encode_request(&request, &data, &size, &error), STATUS_INTERNAL);
    struct wire_reply reply = {.version = WIRE_VERSION};
    ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
    reply.method = METHOD_RUN;
    reply.result.world_size = WORLD_SIZE_MAX + 1;
    ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
    reply.result.world_size = -1;
    ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
    reply.result.world_size = 0;
    reply.status = STATUS_ABORTED;
    reply.failure.world_size = WORLD_SIZE_MAX + 1;
    ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
}
END_TEST

START_TEST(lists_of_a_report_are_not_encoded_past_their_end)
{
    static struct rank_report report;
    static const int32_t outside[] = {-1, OP_TIMES_MAX + 1};
    struct wire_reply reply = {.version = WIRE_VERSION, .method = METHOD_RUN};
    void *data;
    size_t size;
    reply.result.world_size = 1;
    reply.result.ranks = &report;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        report = (struct rank_report){.op_times.count = outside[i]};
        ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
        ck_assert_str_eq(error.text, "a reply has a list longer than allowed");
        report = (struct rank_report){.figures_count = outside[i]};
        ck_assert_int_eq(wire_encode_reply(&reply, &data, &size, &error), STATUS_INTERNAL);
        ck_assert_str_eq(error.text, "a reply has a list longer than allowed");
    }
}
END_TEST

// ---- memory -------------------------------------------------------------------------------------

// Runs `step` again and again: in the first run its first allocation fails, in the second run the
// second, until none fails. A run with a failure returns RESOURCE_EXHAUSTED and frees everything.
static void assert_torture(enum status (*step)(void *), void *argument, int least)
{
    int n = 0;
    for (;; n++) {
        int alive = allocations_alive;
        allocations_until_failure = n;
        enum status status = step(argument);
        bool all_granted = allocations_until_failure >= 0;
        allocations_until_failure = -1;
        alive -= allocations_alive;
        ck_assert_int_eq(alive, 0);
        if (all_granted) {
            ck_assert_int_eq(status, STATUS_OK);
            break;
        }
        ck_assert_int_eq(status, STATUS_RESOURCE_EXHAUSTED);
        ck_assert(strstr(error.text, "memory is short") != NULL);
    }
    ck_assert_int_ge(n, least);
}

struct bytes {
    void *data;
    size_t size;
};

static enum status step_encode_request(void *argument)
{
    struct bytes b;
    enum status status = wire_encode_request(argument, &b.data, &b.size, &error);
    if (status == STATUS_OK)
        free(b.data);
    return status;
}

static enum status step_encode_reply(void *argument)
{
    struct bytes b;
    enum status status = wire_encode_reply(argument, &b.data, &b.size, &error);
    if (status == STATUS_OK)
        free(b.data);
    return status;
}

static enum status step_decode_reply(void *argument)
{
    struct bytes *b = argument;
    struct wire_reply reply;
    enum status status = wire_decode_reply(b->data, b->size, &reply, &error);
    if (status == STATUS_OK)
        wire_reply_fini(&reply);
    return status;
}

START_TEST(any_allocation_may_fail)
{
    struct sample s = {8};
    struct wire_request request = request_of(METHOD_RUN, &s);
    sample_case(&s, &request.run);
    assert_torture(step_encode_request, &request, 1);

    for (int i = 0; i < 4; i++) {
        struct wire_reply reply = {.version = WIRE_VERSION, .method = METHOD_RUN};
        struct bytes b;
        if (i == 0) {
            sample_result_largest(&reply.result);
        } else if (i == 1) {
            reply.status = STATUS_ABORTED;
            sample_failure_largest(&reply.failure);
        } else if (i == 2) {
            reply.method = METHOD_STATUS;
            sample_status(&s, POOLS_MAX, &reply.pools);
        } else {
            reply.method = METHOD_WATCH;
            sample_events_largest(&reply.events);
        }
        assert_torture(step_encode_reply, &reply, 2);
        ck_assert_int_eq(wire_encode_reply(&reply, &b.data, &b.size, &error), STATUS_OK);
        assert_torture(step_decode_reply, &b, 2);
        free(b.data);
        wire_reply_fini(&reply);
    }
}
END_TEST

// The budget stops an input that makes the unpacker allocate many times the size of the input.
static void assert_budget(enum status status, size_t bytes, size_t budget)
{
    char sentence[64];
    snprintf(sentence, sizeof sentence, "takes more memory than the %zu bytes", budget);
    ck_assert_int_eq(status, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(error.text, sentence) != NULL, "%s", error.text);
    ck_assert_uint_gt(bytes, budget / 2);
    ck_assert_uint_lt(bytes, budget + 64 * 1024);
}

START_TEST(unpacking_stays_within_its_budget)
{
    static uint8_t input[REPLY_BYTES_MAX];
    struct wire_request request;
    struct wire_reply reply;
    for (size_t i = 0; i < REQUEST_BYTES_MAX; i += 4) // field 100, varint 0: unknown
        memcpy(input + i, "\xa0\x06\x80\x00", 4);
    size_t before = allocated_bytes;
    enum status status = wire_decode_request(input, REQUEST_BYTES_MAX, &request, &error);
    assert_budget(status, allocated_bytes - before, DECODE_BYTES_MAX);

    // An error (field 10) with empty rank states (field 3).
    memcpy(input, "\x52\xfc\xff\x3f", 4);
    for (size_t i = 4; i < REPLY_BYTES_MAX; i += 2)
        memcpy(input + i, "\x1a\x00", 2);
    before = allocated_bytes;
    status = wire_decode_reply(input, REPLY_BYTES_MAX, &reply, &error);
    assert_budget(status, allocated_bytes - before, DECODE_REPLY_MAX);
}
END_TEST

START_TEST(scratch_hands_out_its_budget_and_no_more)
{
    struct scratch scratch;
    scratch_init(&scratch, 100 * 1024);
    ck_assert_ptr_null(scratch_alloc(&scratch, SIZE_MAX));
    ck_assert_ptr_null(scratch_alloc(&scratch, SIZE_MAX - 14)); // 16 bytes more wrap around
    ck_assert(scratch.over_budget);
    size_t sum = 0;
    for (char *piece; (piece = scratch_alloc(&scratch, 1000)) != NULL; sum += 1000) {
        ck_assert_uint_eq((uintptr_t)piece % _Alignof(max_align_t), 0);
        for (int i = 0; i < 1000; i++)
            ck_assert_int_eq(piece[i], 0);
        memset(piece, 0x5a, 1000);
    }
    ck_assert_uint_eq(sum, 101 * 1000);
    ck_assert_ptr_nonnull(scratch_alloc(&scratch, scratch.left));
    ck_assert_ptr_null(scratch_alloc(&scratch, 1));
    scratch_fini(&scratch);
}
END_TEST

static int case_field_count(void)
{
    int count = 0;
    while (case_fields()[count].name)
        count++;
    return count;
}

int main(void)
{
    Suite *suite = suite_create("wire");
    TCase *trips = tcase_create("round trips");
    tcase_set_timeout(trips, 30);
    tcase_add_test(trips, random_cases_survive);
    tcase_add_test(trips, random_jobs_of_other_kinds_survive);
    tcase_add_loop_test(trips, every_field_of_a_case_is_carried, 0, case_field_count());
    tcase_add_test(trips, other_requests_survive);
    tcase_add_test(trips, results_survive);
    tcase_add_test(trips, failures_survive);
    tcase_add_test(trips, statuses_survive);
    tcase_add_test(trips, events_survive);
    tcase_add_test(trips, other_replies_survive);
    tcase_add_test(trips, the_largest_replies_fit);
    tcase_add_test(trips, unprintable_texts_go_out_printable);
    tcase_add_test(trips, invalid_values_are_not_encoded);
    tcase_add_test(trips, lists_of_a_report_are_not_encoded_past_their_end);
    suite_add_tcase(suite, trips);

    TCase *memory = tcase_create("memory");
    tcase_add_test(memory, any_allocation_may_fail);
    tcase_add_test(memory, unpacking_stays_within_its_budget);
    tcase_add_test(memory, scratch_hands_out_its_budget_and_no_more);
    suite_add_tcase(suite, memory);

    return runner_run(suite);
}
