// SPDX-License-Identifier: Apache-2.0
// Requests on the wire, from any client: invalid ones are refused with the right status and
// message. Missing fields and zeros are different.
#include <stdlib.h>
#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "tests/support/runner.h"
#include "tests/support/wire_samples.h"

static struct error error;
static uint8_t buffer[REQUEST_BYTES_MAX + 1];

// A valid request as a tree that a test can change before encoding.
struct request_tree {
    Cpattn__V1__Request request;
    Cpattn__V1__Run run;
    Cpattn__V1__Case spec;
    Cpattn__V1__Cancel cancel;
    Cpattn__V1__Order order;
    Cpattn__V1__Watch watch;
    uint8_t id[16], cancel_id[17]; // a valid id has 16 bytes
};

static void tree_init(struct request_tree *t)
{
    cpattn__v1__request__init(&t->request);
    cpattn__v1__run__init(&t->run);
    cpattn__v1__case__init(&t->spec);
    cpattn__v1__cancel__init(&t->cancel);
    cpattn__v1__order__init(&t->order);
    cpattn__v1__watch__init(&t->watch);
    memset(t->id, 7, sizeof t->id);
    memset(t->cancel_id, 9, sizeof t->cancel_id);
    t->request.version = WIRE_VERSION;
    t->request.id = (ProtobufCBinaryData){sizeof t->id, t->id};
    t->cancel.id = (ProtobufCBinaryData){sizeof t->id, t->cancel_id};
    t->request.method_case = CPATTN__V1__REQUEST__METHOD_RUN;
    t->request.run = &t->run;
    t->run.spec = &t->spec;
    t->spec.world_size = t->spec.batch = t->spec.a2a_size = 2;
    t->spec.comm = CPATTN__V1__COMM__COMM_P2P;
    t->spec.sharding = CPATTN__V1__SHARDING__SHARDING_ZIGZAG;
    t->spec.dtype = CPATTN__V1__DTYPE__DTYPE_BF16;
    t->spec.format = CPATTN__V1__FORMAT__FORMAT_BSHD;
    t->spec.mask = CPATTN__V1__MASK__MASK_NONE;
    t->spec.inputs = CPATTN__V1__INPUTS__INPUTS_SHARP;
    t->spec.heads = t->spec.kv_heads = 4;
    t->spec.head_dim_qk = t->spec.head_dim_v = 64;
    t->spec.seqlen_q = t->spec.seqlen_kv = 128;
    t->spec.seqlen_q_given_case = CPATTN__V1__CASE__SEQLEN_Q_GIVEN_SEQLEN_Q;
    t->spec.seqlen_kv_given_case = CPATTN__V1__CASE__SEQLEN_KV_GIVEN_SEQLEN_KV;
    t->spec.pad_multiple = 1;
    t->spec.softmax = CPATTN__V1__SOFTMAX__SOFTMAX_VANILLA;
    t->spec.bias = CPATTN__V1__BIAS__BIAS_NONE;
    t->spec.window_left = t->spec.window_right = -1;
    t->spec.window_left_given_case = CPATTN__V1__CASE__WINDOW_LEFT_GIVEN_WINDOW_LEFT;
    t->spec.window_right_given_case = CPATTN__V1__CASE__WINDOW_RIGHT_GIVEN_WINDOW_RIGHT;
}

static enum status tree_send(struct request_tree *t, struct wire_request *request)
{
    size_t size = cpattn__v1__request__pack(&t->request, buffer);
    return wire_decode_request(buffer, size, request, &error);
}

static void assert_tree_refused(struct request_tree *t, enum status expected, const char *part)
{
    struct wire_request request;
    struct request_id id;
    memcpy(id.bytes, t->id, sizeof id.bytes);
    enum status status = tree_send(t, &request);
    ck_assert_msg(status == expected && error.status == expected, "%s: %s", status_name(status),
                  error.text);
    ck_assert_msg(strstr(error.text, part) != NULL, "\"%s\" lacks \"%s\"", error.text, part);
    if (t->request.id.len == sizeof id.bytes)
        ck_assert_mem_eq(&request.id, &id, sizeof id);
}

// Encodes a request and unpacks the message.
static Cpattn__V1__Request *request_unpacked(const struct wire_request *request)
{
    void *data;
    size_t size;
    ck_assert_msg(wire_encode_request(request, &data, &size, &error) == STATUS_OK, "%s",
                  error.text);
    Cpattn__V1__Request *sent = cpattn__v1__request__unpack(NULL, size, data);
    free(data);
    ck_assert_ptr_nonnull(sent);
    return sent;
}

static struct request_tree tree;

static void tree_setup(void)
{
    tree_init(&tree);
}

// ---- jobs of other kinds ----

START_TEST(an_invalid_job_is_refused_with_its_field)
{
    static char text[] = "0123456789012345678901234567890123456789";
    Cpattn__V1__Job job = CPATTN__V1__JOB__INIT;
    Cpattn__V1__JobField field = CPATTN__V1__JOB_FIELD__INIT, *fields[JOB_FIELDS_MAX + 1];
    for (int i = 0; i <= JOB_FIELDS_MAX; i++)
        fields[i] = &field;
    tree.run.job = &job;
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT, "job is given beside a case");
    tree.run.spec = NULL;
    job.kind = (ProtobufCBinaryData){32, (uint8_t *)text};
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT, "job.kind has 32 characters");
    job.kind.len = 3;
    job.fields = fields;
    job.n_fields = JOB_FIELDS_MAX + 1;
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT, "job.fields has 33 entries");
    job.n_fields = 2;
    field.name = (ProtobufCBinaryData){40, (uint8_t *)text};
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT, "job.fields[0].name has 40 characters");
    field.name.len = 4;
    field.value = (ProtobufCBinaryData){3, (uint8_t *)"a\nb"};
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT, "job.fields[0].value has the byte 0x0a");
    field.value.len = 1;
    struct wire_request request;
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert(request.is_job);
    ck_assert_str_eq(request.job.kind, "012");
    ck_assert_int_eq(request.job.field_count, 2);
    ck_assert_str_eq(request.job.fields[1].name, "0123");
    ck_assert_str_eq(request.job.fields[1].value, "a");
}
END_TEST

START_TEST(the_good_request_is_taken)
{
    struct wire_request request;
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(request.run.seqlen_kv, 128);
    ck_assert_int_eq(request.run.window_left, -1);
    ck_assert(!request.run.training);
}
END_TEST

// A request without verify_extent means AUTO, and AUTO is sent without this field.
START_TEST(verify_says_on_the_wire_whether_and_how_much)
{
    static const struct {
        bool verify;
        Cpattn__V1__Extent extent;
        enum case_verify meant;
    } said[] = {{false, 0, VERIFY_OFF},
                {true, 0, VERIFY_AUTO},
                {true, 1, VERIFY_AUTO},
                {true, 2, VERIFY_FULL}};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct wire_request request;
        tree.spec.verify = said[i].verify;
        tree.spec.verify_extent = said[i].extent;
        ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
        ck_assert_int_eq(request.run.verify, said[i].meant);
        Cpattn__V1__Request *sent = request_unpacked(&request);
        ck_assert_int_eq(sent->run->spec->verify, said[i].verify);
        ck_assert_int_eq(sent->run->spec->verify_extent, said[i].extent == 2 ? 2 : 0);
        cpattn__v1__request__free_unpacked(sent, NULL);
    }
}
END_TEST

#define REFUSED(change, status, part)                                                              \
    do {                                                                                           \
        tree_init(&tree);                                                                          \
        change;                                                                                    \
        assert_tree_refused(&tree, STATUS_##status, part);                                         \
    } while (0)

START_TEST(envelopes_are_refused)
{
    REFUSED(tree.request.version = 0, FAILED_PRECONDITION,
            "client speaks version 0 of the protocol, this daemon version 1");
    REFUSED(tree.request.version = 2, FAILED_PRECONDITION, "version 2");
    REFUSED(tree.request.id.len = 0, INVALID_ARGUMENT, "id has 0 bytes; accepted are 16");
    REFUSED(tree.request.id.len = 15, INVALID_ARGUMENT, "id has 15 bytes");
    REFUSED(memset(tree.id, 0, 16), INVALID_ARGUMENT, "id is all zeros");
    REFUSED(tree.request.timeout_ns = TIMEOUT_MAX_NS + 1, INVALID_ARGUMENT,
            "timeout_ns is 86400000000001; accepted is 0 to 86400000000000");
    REFUSED(tree.request.timeout_ns = UINT64_MAX, INVALID_ARGUMENT, "timeout_ns");
    REFUSED(tree.request.run_timeout_ns = TIMEOUT_MAX_NS + 1, INVALID_ARGUMENT,
            "run_timeout_ns is 86400000000001; accepted is 0 to 86400000000000");
    REFUSED(tree.request.method_case = 0, INVALID_ARGUMENT,
            "method is missing; accepted is run, describe, status, cancel, order or watch");
    REFUSED(tree.run.spec = NULL, INVALID_ARGUMENT, "case is missing");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_CANCEL,
             tree.request.cancel = &tree.cancel, tree.cancel.id.len = 17),
            INVALID_ARGUMENT, "cancel.id has 17 bytes; accepted are 16");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_CANCEL,
             tree.request.cancel = &tree.cancel, memset(tree.cancel_id, 0, 16)),
            INVALID_ARGUMENT, "cancel.id is all zeros");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_ORDER,
             tree.request.order = &tree.order),
            INVALID_ARGUMENT, "order.kind is 0; accepted is 1 to 4");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_ORDER,
             tree.request.order = &tree.order, tree.order.kind = 1, tree.order.device = 64),
            INVALID_ARGUMENT, "order.device is 64; accepted is 0 to 63");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_WATCH,
             tree.request.watch = &tree.watch, tree.watch.recent = 1025),
            INVALID_ARGUMENT, "watch.recent is 1025; accepted is 0 to 1024");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_WATCH,
             tree.request.watch = &tree.watch, tree.watch.recent = -1),
            INVALID_ARGUMENT, "watch.recent is -1");
    REFUSED((tree.request.method_case = CPATTN__V1__REQUEST__METHOD_WATCH,
             tree.request.watch = &tree.watch, tree.watch.wait_ns = 60000000001),
            INVALID_ARGUMENT, "watch.wait_ns is 60000000001; accepted is 0 to 60000000000");
}
END_TEST

START_TEST(cases_are_refused)
{
    const int64_t huge = INT64_C(1) << 40;
    REFUSED(tree.spec.world_size = 0, INVALID_ARGUMENT,
            "case.world_size is missing (ranks that share the sequence); accepted is 1 to 64");
    REFUSED(tree.spec.world_size = 65, INVALID_ARGUMENT, "case.world_size is 65");
    REFUSED(tree.spec.world_size = (INT64_C(1) << 32) + 2, INVALID_ARGUMENT,
            "case.world_size is 4294967298; accepted is 1 to 64");
    REFUSED(tree.spec.seqlen_q = -1, INVALID_ARGUMENT,
            "case.seqlen_q is -1; accepted is 0 to 16777216");
    REFUSED(tree.spec.seqlen_kv = huge, INVALID_ARGUMENT, "case.seqlen_kv is 1099511627776");
    REFUSED(tree.spec.seqlen_q = INT64_MIN, INVALID_ARGUMENT, "case.seqlen_q");
    REFUSED(tree.spec.batch = 0, INVALID_ARGUMENT, "case.batch is missing");
    REFUSED(tree.spec.batch = -1, INVALID_ARGUMENT, "case.batch is -1; accepted is 1 to 4096");
    REFUSED(tree.spec.head_dim_qk = 257, INVALID_ARGUMENT, "case.head_dim_qk is 257");
    REFUSED(tree.spec.window_left = -2, INVALID_ARGUMENT, "case.window_left is -2");
    REFUSED(tree.spec.kv_heads = 3, INVALID_ARGUMENT, "case.heads is 4 and kv_heads is 3");
    REFUSED(tree.spec.scale = -1, INVALID_ARGUMENT, "case.scale");
    REFUSED(tree.spec.scale = __builtin_nan(""), INVALID_ARGUMENT, "case.scale");
    REFUSED(tree.spec.dtype = 0, INVALID_ARGUMENT, "case.dtype is missing");
    REFUSED(tree.spec.dtype = 77, INVALID_ARGUMENT, "case.dtype is '77'");
    REFUSED(tree.spec.mask = -1, INVALID_ARGUMENT, "case.mask is '-1'");
    REFUSED((tree.spec.mask = 2, tree.spec.window_right = 1), INVALID_ARGUMENT, "window_right");
    REFUSED((tree.spec.verify = true, tree.spec.verify_extent = 3), INVALID_ARGUMENT,
            "case.verify_extent is '3'; accepted is auto or full");
    REFUSED((tree.spec.verify = true, tree.spec.verify_extent = -1), INVALID_ARGUMENT,
            "case.verify_extent is '-1'");
    REFUSED(tree.spec.verify_extent = 1, INVALID_ARGUMENT,
            "case.verify_extent is given and case.verify is false");
    REFUSED((tree.spec.batch = BATCH_MAX, tree.spec.heads = tree.spec.kv_heads = HEADS_MAX,
             tree.spec.seqlen_q = tree.spec.seqlen_kv = SEQLEN_MAX),
            RESOURCE_EXHAUSTED, "memory");
}
END_TEST

START_TEST(missing_fields_are_refused_by_name)
{
    REFUSED(tree.spec.seqlen_q_given_case = 0, INVALID_ARGUMENT,
            "case.seqlen_q is missing (queries of a sequence over all ranks); accepted is 0 to "
            "16777216");
    REFUSED(tree.spec.seqlen_kv_given_case = 0, INVALID_ARGUMENT, "case.seqlen_kv is missing");
    REFUSED(
        tree.spec.window_left_given_case = 0, INVALID_ARGUMENT,
        "case.window_left is missing (visible keys before the diagonal, -1: all); accepted is -1 "
        "to 16777216");
    REFUSED(tree.spec.window_right_given_case = 0, INVALID_ARGUMENT,
            "case.window_right is missing");
    REFUSED(tree.spec.comm = 0, INVALID_ARGUMENT,
            "case.comm is missing (how ranks exchange keys and values); accepted is p2p, "
            "all_gather, a2a, a2a+p2p or auto");
    REFUSED(tree.spec.sharding = 0, INVALID_ARGUMENT, "case.sharding is missing");
    REFUSED(tree.spec.format = 0, INVALID_ARGUMENT, "case.format is missing");
    REFUSED(tree.spec.heads = 0, INVALID_ARGUMENT, "case.heads is missing");
    REFUSED(tree.spec.kv_heads = 0, INVALID_ARGUMENT, "case.kv_heads is missing");
    REFUSED(tree.spec.head_dim_qk = 0, INVALID_ARGUMENT, "case.head_dim_qk is missing");
    REFUSED(tree.spec.head_dim_v = 0, INVALID_ARGUMENT, "case.head_dim_v is missing");
    REFUSED(tree.spec.mask = 0, INVALID_ARGUMENT, "case.mask is missing");
    REFUSED(tree.spec.inputs = 0, INVALID_ARGUMENT, "case.inputs is missing");
}
END_TEST

// A missing field has the default of the schema. A sent zero is a zero.
START_TEST(missing_fields_mean_what_the_schema_says)
{
    struct wire_request request;
    tree.spec.a2a_size = tree.spec.pad_multiple = 0;
    tree.spec.softmax = 0;
    tree.spec.bias = 0;
    tree.spec.seqlen_q = tree.spec.seqlen_kv = tree.spec.window_left = tree.spec.window_right = 0;
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(request.run.a2a_size, 2);
    ck_assert_int_eq(request.run.pad_multiple, 1);
    ck_assert_int_eq(request.run.softmax, SOFTMAX_VANILLA);
    ck_assert_int_eq(request.run.bias, BIAS_NONE);
    ck_assert_int_eq(request.run.seqlen_q + request.run.seqlen_kv, 0);
    ck_assert_int_eq(request.run.window_left, 0);
    ck_assert_int_eq(request.run.window_right, 0);
    tree.spec.mask = CPATTN__V1__MASK__MASK_CAUSAL;
    tree.spec.window_right_given_case = 0;
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(request.run.window_right, WINDOW_UNBOUNDED);
}
END_TEST

// The bytes of requests from clients that send no zeros.
#define ENVELOPE                                                                                   \
    "\x08\x01\x12\x10\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x18\x80\xe4" \
    "\x97\xd0\x12"
static const char without_zeros_window[] =
    ENVELOPE "\x52\x30\x0a\x2e\x10\x02\x18\x01\x20\x01\x28\x01\x30\x01\x38\x02\x40\x08\x48\x08\x50"
             "\x80\x01\x58\x80"
             "\x01\x60\x64\x68\x64\x70\x02\x78\x80\x08\x98\x01\x01\xb0\x01\x02\xd8\x01\x01\xe8\x01"
             "\x01\xf0\x01\x01";
static const char without_zeros_packed[] =
    ENVELOPE "\x52\x65\x0a\x63\x0a\x03\x6f\x6c\x64\x10\x04\x18\x04\x20\x01\x28\x01\x30\x03\x38\x02"
             "\x40\x08\x48\x08"
             "\x50\x80\x01\x58\x80\x01\x60\x80\x04\x68\x80\x04\x70\x01\x78\x06\x80\x01\x08\x89\x01"
             "\x00\x00\x00\x00"
             "\x00\x00\xd0\x3f\x90\x01\x01\x98\x01\x02\xa0\x01\xd2\x09\xa8\x01\x05\xb0\x01\x02\xba"
             "\x01\x02\x09\x08"
             "\xd8\x01\x08\xe1\x01\x00\x00\x00\x00\x00\x00\x04\x40\xe8\x01\x03\xf0\x01\x03\xf8\x01"
             "\x01\x80\x02\x01"
             "\x88\x02\x01";

START_TEST(clients_that_send_no_zeros_are_understood)
{
    struct wire_request request;
    struct cp_case c;
    const int32_t lengths[] = {9, 8};
    case_init(&c);
    c.seqlen_q = c.seqlen_kv = 100;
    c.window_left = 512;
    c.training = c.deterministic = false;
    c.verify = VERIFY_OFF;
    c.seed = 0;
    ck_assert_msg(wire_decode_request(without_zeros_window, sizeof without_zeros_window - 1,
                                      &request, &error) == STATUS_OK,
                  "%s", error.text);
    ck_assert_mem_eq(&request.run, &c, sizeof c);

    case_init(&c);
    strcpy(c.model, "old");
    c.world_size = 4;
    c.comm = COMM_A2A_P2P;
    c.format = FORMAT_THD;
    c.mask = MASK_NONE;
    c.window_left = 3;
    c.window_right = 4;
    c.pad_multiple = 8;
    case_list_set(&c, LIST_LENGTHS_Q, lengths, 2);
    c.softmax = SOFTMAX_LEARNABLE;
    c.bias = BIAS_11SS;
    c.softcap = 2.5;
    c.scale = 0.25;
    c.max_logit = true;
    c.explore_seed = 5;
    c.inputs = INPUTS_TE;
    ck_assert_msg(wire_decode_request(without_zeros_packed, sizeof without_zeros_packed - 1,
                                      &request, &error) == STATUS_OK,
                  "%s", error.text);
    ck_assert_mem_eq(&request.run, &c, sizeof c);
}
END_TEST

static int64_t entries[SEQUENCES_MAX + 1];

#define SEND_LIST(list, count) (tree.spec.n_##list = (count), tree.spec.list = entries)

START_TEST(lists_are_refused)
{
    struct wire_request request;
    for (int i = 0; i <= SEQUENCES_MAX; i++)
        entries[i] = 100;
    REFUSED(SEND_LIST(lengths_q, SEQUENCES_MAX + 1), INVALID_ARGUMENT,
            "case.lengths_q has 1025 entries; accepted are up to 1024");
    REFUSED(SEND_LIST(lengths_q, SEQUENCES_MAX), INVALID_ARGUMENT,
            "case.lengths_q has 1024 numbers and batch is 2");
    REFUSED(SEND_LIST(padded_kv, 2), INVALID_ARGUMENT, "case.padded_kv is given with format bshd");
    entries[1] = -1;
    REFUSED(SEND_LIST(lengths_kv, 2), INVALID_ARGUMENT,
            "case.lengths_kv[1] is -1; accepted is 0 to 16777216");
    entries[1] = (INT64_C(1) << 32) + 5;
    REFUSED(SEND_LIST(padded_q, 2), INVALID_ARGUMENT,
            "case.padded_q[1] is 4294967301; accepted is 0 to 16777216");
    entries[1] = 5;
    tree_init(&tree);
    SEND_LIST(lengths_q, 2);
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(case_length(&request.run, SIDE_KV, 1), 5);
    tree.spec.batch = SEQUENCES_MAX;
    SEND_LIST(lengths_kv, SEQUENCES_MAX);
    tree.spec.n_lengths_q = 0;
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(request.run.list_count[LIST_LENGTHS_KV], SEQUENCES_MAX);
}
END_TEST

// A list with as many entries as fit in a request is refused before it is stored.
START_TEST(lists_of_a_whole_request_are_counted_first)
{
    static int64_t many[REQUEST_BYTES_MAX - 256];
    tree.spec.n_padded_kv = REQUEST_BYTES_MAX - 256;
    tree.spec.padded_kv = many;
    assert_tree_refused(&tree, STATUS_INVALID_ARGUMENT,
                        "case.padded_kv has 65280 entries; accepted are up to 1024");
}
END_TEST

START_TEST(labels_are_refused)
{
    char label[MODEL_NAME_MAX + 1];
    memset(label, 'm', sizeof label);
    ProtobufCBinaryData model = {MODEL_NAME_MAX - 1, (uint8_t *)label};
    struct wire_request request;
    tree.spec.model = model;
    ck_assert_int_eq(tree_send(&tree, &request), STATUS_OK);
    model.len = MODEL_NAME_MAX;
    REFUSED(tree.spec.model = model, INVALID_ARGUMENT,
            "case.model has 64 characters; accepted are up to 63");
    model.len = 3;
    label[1] = '\0';
    REFUSED(tree.spec.model = model, INVALID_ARGUMENT,
            "case.model has the byte 0x00 at 1; accepted is printable ASCII");
    label[1] = '\n';
    REFUSED(tree.spec.model = model, INVALID_ARGUMENT, "0x0a at 1");
    label[1] = '\xe9';
    REFUSED(tree.spec.model = model, INVALID_ARGUMENT, "0xe9 at 1");
}
END_TEST

static ProtobufCMessageUnknownField unknown = {
    .tag = 99, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = (uint8_t[]){1}};

#define ADD_UNKNOWN(message) ((message).n_unknown_fields = 1, (message).unknown_fields = &unknown)

// An unknown field in a case or run could change its meaning, so it is refused. In the envelope it
// is ignored if the method is known.
START_TEST(unknown_fields_are_refused_where_they_matter)
{
    struct wire_request request;
    REFUSED(ADD_UNKNOWN(tree.spec.base), UNIMPLEMENTED,
            "case has a field number 99 that this daemon does not know; the client is newer");
    REFUSED(ADD_UNKNOWN(tree.run.base), UNIMPLEMENTED, "run has a field number 99");
    REFUSED((tree.request.method_case = 0, ADD_UNKNOWN(tree.request.base)), UNIMPLEMENTED,
            "request has a field number 99");
    tree_init(&tree);
    ADD_UNKNOWN(tree.request.base);
    ck_assert_msg(tree_send(&tree, &request) == STATUS_OK, "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_requests");
    TCase *requests = tcase_create("requests");
    tcase_add_checked_fixture(requests, tree_setup, NULL);
    tcase_add_test(requests, the_good_request_is_taken);
    tcase_add_test(requests, an_invalid_job_is_refused_with_its_field);
    tcase_add_test(requests, verify_says_on_the_wire_whether_and_how_much);
    tcase_add_test(requests, envelopes_are_refused);
    tcase_add_test(requests, cases_are_refused);
    tcase_add_test(requests, missing_fields_are_refused_by_name);
    tcase_add_test(requests, missing_fields_mean_what_the_schema_says);
    tcase_add_test(requests, clients_that_send_no_zeros_are_understood);
    tcase_add_test(requests, lists_are_refused);
    tcase_add_test(requests, lists_of_a_whole_request_are_counted_first);
    tcase_add_test(requests, labels_are_refused);
    tcase_add_test(requests, unknown_fields_are_refused_where_they_matter);
    suite_add_tcase(suite, requests);
    return runner_run(suite);
}
