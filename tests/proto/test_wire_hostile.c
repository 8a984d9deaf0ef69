// SPDX-License-Identifier: Apache-2.0
// The codec with invalid messages: refused with the right status and message.
#include <stdlib.h>
#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "tests/support/runner.h"
#include "tests/support/wire_samples.h"

static struct error error;
static uint8_t buffer[REPLY_BYTES_MAX + 1];

// ---- replies ------------------------------------------------------------------------------------

static size_t reply_pack(const struct wire_reply *reply)
{
    void *data;
    size_t size;
    ck_assert_msg(wire_encode_reply(reply, &data, &size, &error) == STATUS_OK, "%s", error.text);
    memcpy(buffer, data, size);
    free(data);
    return size;
}

static void assert_reply_refused(const struct wire_reply *reply, const char *part)
{
    struct wire_reply got;
    size_t size = reply_pack(reply);
    enum status status = wire_decode_reply(buffer, size, &got, &error);
    ck_assert_msg(status == STATUS_DATA_LOSS && error.status == STATUS_DATA_LOSS, "%s: %s",
                  status_name(status), error.text);
    ck_assert_msg(strstr(error.text, part) != NULL, "\"%s\" lacks \"%s\"", error.text, part);
    ck_assert_ptr_null(got.result.ranks);
    ck_assert_ptr_null(got.failure.ranks);
    ck_assert_ptr_null(got.pools.pools);
}

static struct wire_reply reply;

static void reply_setup(void)
{
    struct sample s = {11};
    memset(&reply, 0, sizeof reply);
    reply.version = WIRE_VERSION;
    reply.method = METHOD_RUN;
    sample_result(&s, 3, &reply.result);
    for (int rank = 0; rank < 3; rank++)
        if (reply.result.ranks[rank].figures_count < 2)
            reply.result.ranks[rank].figures_count = 0;
    sample_failure(&s, 3, &reply.failure);
    sample_status(&s, 3, &reply.pools);
    reply.pools.open[0].rank_count = 2;
    sample_events(&s, 3, &reply.events);
}

static void reply_teardown(void)
{
    wire_reply_fini(&reply);
}

// Changes a member, checks, and restores the member.
#define REPLY_REFUSED(member, value, part)                                                         \
    do {                                                                                           \
        __typeof__(member) saved = member;                                                         \
        member = value;                                                                            \
        assert_reply_refused(&reply, part);                                                        \
        member = saved;                                                                            \
    } while (0)

START_TEST(results_are_refused)
{
    struct rank_report *rank = &reply.result.ranks[1];
    rank->figures_count = 2;
    rank->figures[0].tensor = rank->figures[1].tensor = TENSOR_OUT;
    rank->figures[0].name[0] = rank->figures[1].name[0] = '\0';
    struct figures *f = &rank->figures[1];
    REPLY_REFUSED(reply.result.verdict, 0, "result.verdict is not specified");
    REPLY_REFUSED(reply.result.verdict, 4, "result.verdict is 4; accepted is 1 to 3");
    REPLY_REFUSED(reply.result.world_size, 0, "result.ranks has 0 entries; accepted are 1 to 64");
    REPLY_REFUSED(rank->rank, 2, "result.ranks[1].rank is 2; accepted is 1");
    REPLY_REFUSED(rank->rank, -1, "result.ranks[1].rank is -1; accepted is 0 to 63");
    REPLY_REFUSED(f->tensor, 0, "result.ranks[1].figures[1].tensor is not specified");
    REPLY_REFUSED(f->tensor, 9, "figures[1].tensor is 9; accepted is 1 to 8");
    f->tensor = 0; // a name in place of the number
    strcpy(f->name, "sum");
    REPLY_REFUSED(f->name[1], 'U', "figures[1].name is 'sUm'; accepted are letters");
    f->tensor = TENSOR_OUT;
    REPLY_REFUSED(f->chunk, 3, "figures[1].chunk is 3");
    REPLY_REFUSED(f->broken, 128, "figures[1].broken is 128; accepted is 0 to 127");
    REPLY_REFUSED(f->elements, -1, "figures[1].elements is -1");
    REPLY_REFUSED(f->first_bad.position, -2, "figures[1].first_bad.position is -2");
    REPLY_REFUSED(f->worst_row.head, HEADS_MAX, "figures[1].worst_row.head is 4096");
    REPLY_REFUSED(f->judged, -1, "figures[1].judged is -1");
    f->elements = 8;
    REPLY_REFUSED(f->judged, 9, "figures[1].judged is 9; accepted is 0 to 8");
    f->judged = 0;
    REPLY_REFUSED(f->te_mismatches, -1, "figures[1].te_mismatches is -1");
    REPLY_REFUSED(f->remark, REMARK_COUNT, "figures[1].remark is 3; accepted is 0 to 2");
    REPLY_REFUSED(f->remark, -1, "figures[1].remark is -1");
}
END_TEST

START_TEST(diagnoses_are_refused)
{
    struct diagnosis *d = &reply.result.ranks[1].diagnosis;
    reply.result.ranks[1].figures_count = 0;
    *d = (struct diagnosis){.tensor = TENSOR_DQ, .explained = 0.5, .text = "the scale is missing"};
    REPLY_REFUSED(d->tensor, 9, "result.ranks[1].diagnosis.tensor is 9; accepted is 1 to 8");
    REPLY_REFUSED(d->tensor, -1, "diagnosis.tensor is -1; accepted is 1 to 8");
    REPLY_REFUSED(d->explained, 1.5, "diagnosis.explained is 1.5; accepted is 0 to 1");
    REPLY_REFUSED(d->explained, -0.5, "diagnosis.explained is -0.5; accepted is 0 to 1");
    REPLY_REFUSED(d->explained, (double)NAN, "diagnosis.explained is nan; accepted is 0 to 1");
}
END_TEST

// A text as long as its array, without room for a NUL, and a text with a control character.
START_TEST(texts_of_diagnoses_are_refused)
{
    char text[DIAGNOSIS_TEXT_MAX + 1];
    Cpattn__V1__Diagnosis diagnosis = CPATTN__V1__DIAGNOSIS__INIT;
    Cpattn__V1__Timings timings = CPATTN__V1__TIMINGS__INIT;
    Cpattn__V1__Rank rank = CPATTN__V1__RANK__INIT, *ranks[] = {&rank};
    Cpattn__V1__Result result = CPATTN__V1__RESULT__INIT;
    Cpattn__V1__Reply message = CPATTN__V1__REPLY__INIT;
    struct wire_reply got;
    uint8_t id[16] = {0};
    message.version = WIRE_VERSION;
    message.id = (ProtobufCBinaryData){sizeof id, id};
    message.answer_case = CPATTN__V1__REPLY__ANSWER_RESULT;
    message.result = &result;
    result.verdict = CPATTN__V1__VERDICT__VERDICT_FAIL;
    result.n_ranks = 1;
    result.ranks = ranks;
    rank.timings = &timings;
    rank.diagnosis = &diagnosis;
    diagnosis.tensor = CPATTN__V1__TENSOR__TENSOR_DQ;
    memset(text, 'x', sizeof text);
    diagnosis.text = (ProtobufCBinaryData){DIAGNOSIS_TEXT_MAX, (uint8_t *)text};
    size_t size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "result.ranks[0].diagnosis.text has 240 characters; accepted are "
                                 "up to 239");
    text[2] = '\033';
    diagnosis.text.len = 8;
    size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "result.ranks[0].diagnosis.text has the byte 0x1b at 2; accepted "
                                 "is printable ASCII");
}
END_TEST

START_TEST(failures_are_refused)
{
    struct wire_rank_state *state = &reply.failure.ranks[2];
    reply.status = STATUS_ABORTED;
    REPLY_REFUSED(reply.status, 17, "error.code is 17; accepted is 1 to 16");
    REPLY_REFUSED(state->rank, 0, "error.ranks[2].rank is 0; accepted is 2");
    REPLY_REFUSED(state->phase, REPORT_PHASES, "error.ranks[2].phase is 8; accepted is 1 to 7");
    REPLY_REFUSED(state->phase, -1, "error.ranks[2].phase is not specified");
    REPLY_REFUSED(state->step, -1, "error.ranks[2].step is -1");
    REPLY_REFUSED(state->waiting_for, 64, "error.ranks[2].waiting_for is 64");
}
END_TEST

START_TEST(statuses_are_refused)
{
    struct wire_pool *pool = &reply.pools.pools[1];
    reply.method = METHOD_STATUS;
    REPLY_REFUSED(reply.pools.queued, -1, "status.queued is -1");
    REPLY_REFUSED(pool->state, 0, "status.pools[1].state is not specified");
    REPLY_REFUSED(pool->state, 9, "status.pools[1].state is 9; accepted is 1 to 8");
    REPLY_REFUSED(pool->world_size, 0, "status.pools[1].world_size is 0; accepted is 1 to 64");
    REPLY_REFUSED(reply.pools.open[0].rank_phases[1], REPORT_PHASES,
                  "status.requests[0].rank_phases[1] is 8; accepted is 1 to 7");
    REPLY_REFUSED(reply.pools.open[0].rank_steps[0], -1, "status.requests[0].rank_steps[0] is -1");
    reply.method = METHOD_WATCH;
    REPLY_REFUSED(reply.events.list[1].kind, 0, "events.events[1].kind is not specified");
    REPLY_REFUSED(reply.events.list[1].kind, 7, "events.events[1].kind is 7; accepted is 1 to 6");
    REPLY_REFUSED(reply.events.list[0].code, 17,
                  "events.events[0].code is 17; accepted is 0 to 16");
    reply.method = METHOD_DESCRIBE;
    REPLY_REFUSED(reply.description.devices, -1, "description.devices is -1");
}
END_TEST

START_TEST(foreign_replies_are_refused)
{
    struct wire_reply got;
    Cpattn__V1__Reply message = CPATTN__V1__REPLY__INIT;
    uint8_t id[16] = {0};
    message.version = 2;
    size_t size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_FAILED_PRECONDITION);
    ck_assert_str_eq(error.text,
                     "the daemon speaks version 2 of the protocol, this client version 1");
    message.version = WIRE_VERSION;
    size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert(strstr(error.text, "id has 0 bytes") != NULL);
    message.id = (ProtobufCBinaryData){sizeof id, id};
    size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert(strstr(error.text, "no answer known here") != NULL);

    // Missing nested messages.
    Cpattn__V1__Result result = CPATTN__V1__RESULT__INIT;
    Cpattn__V1__Rank rank = CPATTN__V1__RANK__INIT, *ranks[] = {&rank};
    Cpattn__V1__Timings timings = CPATTN__V1__TIMINGS__INIT;
    Cpattn__V1__Figures figures = CPATTN__V1__FIGURES__INIT, *list[] = {&figures};
    message.answer_case = CPATTN__V1__REPLY__ANSWER_RESULT;
    message.result = &result;
    result.verdict = CPATTN__V1__VERDICT__VERDICT_PASS;
    result.n_ranks = 1;
    result.ranks = ranks;
    size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "result.ranks[0].timings is missing");
    rank.timings = &timings;
    rank.n_figures = 1;
    rank.figures = list;
    figures.tensor = CPATTN__V1__TENSOR__TENSOR_OUT;
    size = cpattn__v1__reply__pack(&message, buffer);
    ck_assert_int_eq(wire_decode_reply(buffer, size, &got, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "result.ranks[0].figures[0].worst_row is missing");
}
END_TEST

static size_t pack_list(Cpattn__V1__Reply *message)
{
    size_t size = cpattn__v1__reply__get_packed_size(message);
    ck_assert_uint_le(size, sizeof buffer);
    return cpattn__v1__reply__pack(message, buffer);
}

START_TEST(long_lists_and_wide_numbers_are_refused)
{
    enum { MANY = 65 };
    struct wire_reply got;
    uint8_t id[16] = {0};
    Cpattn__V1__Reply message = CPATTN__V1__REPLY__INIT;
    Cpattn__V1__Error failed = CPATTN__V1__ERROR__INIT;
    Cpattn__V1__RankState state = CPATTN__V1__RANK_STATE__INIT, *states[MANY];
    Cpattn__V1__DaemonStatus daemon = CPATTN__V1__DAEMON_STATUS__INIT;
    Cpattn__V1__Pool pool = CPATTN__V1__POOL__INIT, *pools[MANY];
    for (int i = 0; i < MANY; i++) {
        states[i] = &state;
        pools[i] = &pool;
    }
    message.version = WIRE_VERSION;
    message.id = (ProtobufCBinaryData){sizeof id, id};
    message.answer_case = CPATTN__V1__REPLY__ANSWER_ERROR;
    message.error = &failed;
    failed.code = CPATTN__V1__CODE__CODE_ABORTED;
    failed.n_ranks = MANY;
    failed.ranks = states;
    ck_assert_int_eq(wire_decode_reply(buffer, pack_list(&message), &got, &error),
                     STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "error.ranks has 65 entries; accepted are 0 to 64");
    pool.world_size = 1;
    pool.state = CPATTN__V1__POOL_STATE__POOL_STATE_IDLE;
    message.answer_case = CPATTN__V1__REPLY__ANSWER_STATUS;
    message.status = &daemon;
    daemon.n_pools = MANY;
    daemon.pools = pools;
    ck_assert_int_eq(wire_decode_reply(buffer, pack_list(&message), &got, &error),
                     STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "status.pools has 65 entries; accepted are 0 to 64");
    daemon.n_pools = 1;
    pool.generation = UINT64_C(1) << 32;
    ck_assert_int_eq(wire_decode_reply(buffer, pack_list(&message), &got, &error),
                     STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text,
                     "status.pools[0].generation is 4294967296; accepted is 0 to 4294967295");
    pool.generation--;
    ck_assert_int_eq(wire_decode_reply(buffer, pack_list(&message), &got, &error), STATUS_OK);
    wire_reply_fini(&got);
}
END_TEST

// ---- bytes --------------------------------------------------------------------------------------

// The method comes last, so a prefix of a request is never a valid request.
START_TEST(truncated_requests_are_refused)
{
    struct sample s = {12};
    for (int i = 0; i < 50; i++) {
        struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_RUN}, got;
        void *data;
        size_t size;
        sample_id(&s, &request.id);
        sample_case(&s, &request.run);
        ck_assert_int_eq(wire_encode_request(&request, &data, &size, &error), STATUS_OK);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *part = malloc(cut + 1); // a sanitizer notices a read past the end
            memcpy(part, data, cut);
            ck_assert_int_ne(wire_decode_request(part, cut, &got, &error), STATUS_OK);
            free(part);
        }
        free(data);
    }
}
END_TEST

START_TEST(truncated_replies_are_refused)
{
    struct wire_reply got;
    size_t size = reply_pack(&reply);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, buffer, cut);
        ck_assert_int_ne(wire_decode_reply(part, cut, &got, &error), STATUS_OK);
        free(part);
    }
}
END_TEST

START_TEST(garbage_is_refused)
{
    struct sample s = {13};
    struct wire_request request;
    struct wire_reply got;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[64];
        size_t size = (size_t)sample_range(&s, 0, sizeof bytes);
        for (size_t k = 0; k < size; k++)
            bytes[k] = (uint8_t)sample_bits(&s);
        ck_assert_int_ne(wire_decode_request(bytes, size, &request, &error), STATUS_OK);
        ck_assert_int_ne(wire_decode_reply(bytes, size, &got, &error), STATUS_OK);
        ck_assert(error.text[0] != '\0');
    }
    ck_assert_int_eq(wire_decode_request("\x12\xff", 2, &request, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "the request is no message of this protocol (2 bytes)");
    ck_assert_int_eq(wire_decode_reply("\x12\xff", 2, &got, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "the reply is no message of this protocol (2 bytes)");
    ck_assert_int_eq(wire_decode_request(NULL, 0, &request, NULL), STATUS_FAILED_PRECONDITION);
    ck_assert_int_eq(wire_decode_reply(NULL, 0, &got, NULL), STATUS_FAILED_PRECONDITION);
}
END_TEST

START_TEST(oversized_messages_are_refused)
{
    struct wire_request request;
    struct wire_reply got;
    memset(buffer, 0, sizeof buffer);
    ck_assert_int_eq(wire_decode_request(buffer, REQUEST_BYTES_MAX + 1, &request, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "the request has 65537 bytes; accepted are up to 65536");
    ck_assert_int_eq(wire_decode_reply(buffer, REPLY_BYTES_MAX + 1, &got, &error),
                     STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "the reply has 1048577 bytes; accepted are up to 1048576");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_hostile");
    TCase *replies = tcase_create("replies");
    tcase_add_checked_fixture(replies, reply_setup, reply_teardown);
    tcase_add_test(replies, results_are_refused);
    tcase_add_test(replies, diagnoses_are_refused);
    tcase_add_test(replies, texts_of_diagnoses_are_refused);
    tcase_add_test(replies, failures_are_refused);
    tcase_add_test(replies, statuses_are_refused);
    tcase_add_test(replies, foreign_replies_are_refused);
    tcase_add_test(replies, long_lists_and_wide_numbers_are_refused);
    tcase_add_test(replies, truncated_replies_are_refused);
    suite_add_tcase(suite, replies);

    TCase *bytes = tcase_create("bytes");
    tcase_set_timeout(bytes, 30);
    tcase_add_test(bytes, truncated_requests_are_refused);
    tcase_add_test(bytes, garbage_is_refused);
    tcase_add_test(bytes, oversized_messages_are_refused);
    suite_add_tcase(suite, bytes);
    return runner_run(suite);
}
