// SPDX-License-Identifier: Apache-2.0
// The schema follows its rules and agrees with the internal structs and enums.
#include <ctype.h>
#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "proto/schema.h"
#include "proto/wire.h"
#include "tests/support/runner.h"

static const ProtobufCMessageDescriptor *const envelopes[] = {&cpattn__v1__request__descriptor,
                                                              &cpattn__v1__reply__descriptor};

struct walk {
    const ProtobufCMessageDescriptor *stack[16];
    int depth, deepest;
    void (*visit)(const ProtobufCMessageDescriptor *message);
};

static void walk_message(struct walk *w, const ProtobufCMessageDescriptor *message)
{
    for (int i = 0; i < w->depth; i++)
        ck_assert_msg(w->stack[i] != message, "%s contains itself", message->name);
    ck_assert_int_lt(w->depth, 16);
    w->stack[w->depth++] = message;
    w->deepest = w->depth > w->deepest ? w->depth : w->deepest;
    if (w->visit)
        w->visit(message);
    for (unsigned i = 0; i < message->n_fields; i++)
        if (message->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            walk_message(w, message->fields[i].descriptor);
    w->depth--;
}

START_TEST(no_message_contains_itself)
{
    struct walk w = {.depth = 0};
    for (int i = 0; i < 2; i++)
        walk_message(&w, envelopes[i]);
    ck_assert_int_eq(w.deepest, 5); // reply, result, rank, figures, element
}
END_TEST

// The schema uses only the types that the maps support. Number 0 of each enum is UNSPECIFIED.
static void visit_types(const ProtobufCMessageDescriptor *message)
{
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        switch (field->type) {
        case PROTOBUF_C_TYPE_ENUM: {
            const ProtobufCEnumDescriptor *values = field->descriptor;
            ck_assert_int_eq(values->values[0].value, 0);
            ck_assert(strstr(values->values[0].name, "_UNSPECIFIED") != NULL);
            break;
        }
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
        case PROTOBUF_C_TYPE_DOUBLE:
        case PROTOBUF_C_TYPE_BOOL:
        case PROTOBUF_C_TYPE_BYTES:
        case PROTOBUF_C_TYPE_MESSAGE:
            break;
        default:
            ck_assert_str_eq(field->name, "version");
        }
    }
}

START_TEST(only_agreed_types_are_used)
{
    struct walk w = {.visit = visit_types};
    for (int i = 0; i < 2; i++)
        walk_message(&w, envelopes[i]);
}
END_TEST

static bool kind_fits(enum map_kind kind, ProtobufCType type)
{
    switch (kind) {
    case MAP_INT:
        return type == PROTOBUF_C_TYPE_INT64 || type == PROTOBUF_C_TYPE_SINT64;
    case MAP_LIST:
    case MAP_CHAR:
        return type == PROTOBUF_C_TYPE_INT64;
    case MAP_UINT:
        return type == PROTOBUF_C_TYPE_UINT64 || type == PROTOBUF_C_TYPE_FIXED64;
    case MAP_REAL:
        return type == PROTOBUF_C_TYPE_DOUBLE;
    case MAP_BOOL:
        return type == PROTOBUF_C_TYPE_BOOL;
    case MAP_ENUM:
        return type == PROTOBUF_C_TYPE_ENUM;
    case MAP_TEXT:
    case MAP_LINES:
        return type == PROTOBUF_C_TYPE_BYTES;
    }
    return false;
}

static void assert_field_fits(const ProtobufCMessageDescriptor *message,
                              const struct map_field *map)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message, map->name);
    ck_assert_msg(field != NULL, "%s has no %s", message->name, map->name);
    bool list = field->type != PROTOBUF_C_TYPE_MESSAGE && field->label == PROTOBUF_C_LABEL_REPEATED;
    ck_assert_msg(kind_fits(map->kind, field->type) && list == (map->kind == MAP_LIST), "%s.%s",
                  message->name, map->name);
}

// Every field of the message is in the table, except `others` fields: messages, lists, and fields
// with a table of their own.
static void assert_table_covers(const ProtobufCMessageDescriptor *message,
                                const struct map_field *table, unsigned others)
{
    unsigned count = 0;
    for (; table->name; table++, count++)
        assert_field_fits(message, table);
    ck_assert_msg(count + others == message->n_fields, "%s: %u of %u fields", message->name, count,
                  message->n_fields);
}

// On the wire the field `verify` is two fields: whether results are compared, and how many of them.
static bool is_verify(const struct case_field *field)
{
    return strcmp(field->name, "verify") == 0;
}

START_TEST(every_field_has_its_member)
{
    assert_table_covers(&cpattn__v1__rank_state__descriptor, schema_rank_state, 0);
    assert_table_covers(&cpattn__v1__result__descriptor, schema_result, 1);
    assert_table_covers(&cpattn__v1__rank__descriptor, schema_rank, 5);
    assert_table_covers(&cpattn__v1__operation_times__descriptor, schema_op_times, 2);
    assert_table_covers(&cpattn__v1__diagnosis__descriptor, schema_diagnosis, 2);
    assert_field_fits(&cpattn__v1__diagnosis__descriptor, schema_diagnosis_tensor);
    assert_field_fits(&cpattn__v1__diagnosis__descriptor, schema_diagnosis_name);
    assert_table_covers(&cpattn__v1__timings__descriptor, schema_timings, 0);
    assert_table_covers(&cpattn__v1__figures__descriptor, schema_figures, 4);
    assert_field_fits(&cpattn__v1__figures__descriptor, schema_tensor);
    assert_field_fits(&cpattn__v1__figures__descriptor, schema_tensor_name);
    assert_table_covers(&cpattn__v1__element__descriptor, schema_element, 0);
    assert_table_covers(&cpattn__v1__description__descriptor, schema_description, 3);
    assert_table_covers(&cpattn__v1__provider__descriptor, schema_provider, 0);
    assert_table_covers(&cpattn__v1__provider_use__descriptor, schema_use, 0);
    assert_table_covers(&cpattn__v1__device__descriptor, schema_device, 0);
    assert_table_covers(&cpattn__v1__guest__descriptor, schema_guest, 0);
    assert_table_covers(&cpattn__v1__daemon_status__descriptor, schema_status, 3);
    assert_table_covers(&cpattn__v1__host__descriptor, schema_host, 0);
    assert_table_covers(&cpattn__v1__pool__descriptor, schema_pool, 0);
    assert_table_covers(&cpattn__v1__open_request__descriptor, schema_open, 2);
    assert_field_fits(&cpattn__v1__open_request__descriptor, &schema_rank_phases);
    assert_field_fits(&cpattn__v1__open_request__descriptor, &schema_rank_steps);
    assert_table_covers(&cpattn__v1__watch__descriptor, schema_watch, 0);
    assert_table_covers(&cpattn__v1__events__descriptor, schema_events, 1);
    assert_table_covers(&cpattn__v1__event__descriptor, schema_event, 0);
    unsigned count = 0;
    for (const struct case_field *field = case_fields(); field->name; field++, count++) {
        struct map_field map = schema_case_field(field);
        if (!is_verify(field))
            assert_field_fits(&cpattn__v1__case__descriptor, &map);
    }
    ck_assert_uint_eq(count + 1, cpattn__v1__case__descriptor.n_fields); // verify: two fields
}
END_TEST

// The name of the enum's value is PREFIX_NAME, in upper case.
static void assert_value_named(const ProtobufCEnumDescriptor *values, int number, const char *name)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(values, number);
    ck_assert_msg(value != NULL, "%s has no %d", values->name, number);
    const char *tail = value->name + strlen(value->name) - strlen(name);
    bool same = tail > value->name && tail[-1] == '_';
    for (size_t i = 0; same && name[i]; i++)
        same = tail[i] == (name[i] == '+' ? '_' : toupper((unsigned char)name[i]));
    ck_assert_msg(same, "%s is not called %s", value->name, name);
}

START_TEST(enums_agree_with_those_inside)
{
    for (const struct case_field *field = case_fields(); field->name; field++) {
        if (field->kind != FIELD_CHOICE || is_verify(field))
            continue;
        const ProtobufCEnumDescriptor *values = protobuf_c_message_descriptor_get_field_by_name(
                                                    &cpattn__v1__case__descriptor, field->name)
                                                    ->descriptor;
        unsigned count = 1;
        for (const struct case_choice *choice = field->choices; choice->name; choice++, count++)
            assert_value_named(values, choice->value, choice->name);
        ck_assert_uint_eq(count, values->n_values);
    }
    assert_value_named(&cpattn__v1__extent__descriptor, VERIFY_AUTO - 1, "auto");
    assert_value_named(&cpattn__v1__extent__descriptor, VERIFY_FULL - 1, "full");
    for (int code = 1; code < STATUS_COUNT; code++)
        assert_value_named(&cpattn__v1__code__descriptor, code, status_name((enum status)code));
    for (int phase = 0; phase < REPORT_PHASES; phase++)
        assert_value_named(&cpattn__v1__phase__descriptor, phase + 1, report_phase_name(phase));
    for (int tensor = 1; tensor < TENSOR_COUNT; tensor++)
        assert_value_named(&cpattn__v1__tensor__descriptor, tensor, report_tensor_name(tensor));
    for (int state = POOL_STARTING; state <= POOL_STUCK; state++)
        assert_value_named(&cpattn__v1__pool_state__descriptor, state,
                           pool_state_name((enum pool_state)state));
    assert_value_named(&cpattn__v1__verdict__descriptor, VERDICT_PASS, "pass");
    assert_value_named(&cpattn__v1__verdict__descriptor, VERDICT_FAIL, "fail");
    assert_value_named(&cpattn__v1__verdict__descriptor, VERDICT_UNVERIFIED, "unverified");
    for (int kind = EVENT_ADMITTED; kind <= EVENT_DAEMON; kind++)
        assert_value_named(&cpattn__v1__event_kind__descriptor, kind,
                           event_kind_name((enum wire_event_kind)kind));
    for (int state = DEVICE_ENABLED; state <= DEVICE_STUCK; state++)
        assert_value_named(&cpattn__v1__device_state__descriptor, state,
                           device_state_name((enum device_state)state));
    ck_assert_uint_eq(cpattn__v1__event_kind__descriptor.n_values, EVENT_DAEMON + 1);
    ck_assert_uint_eq(cpattn__v1__device_state__descriptor.n_values, DEVICE_STUCK + 1);
    ck_assert_str_eq(event_kind_name(EVENT_DAEMON + 1), "?");
    ck_assert_str_eq(device_state_name(0), "?");
    ck_assert_str_eq(pool_state_name(0), "?");
    ck_assert_str_eq(pool_state_name(POOL_STUCK + 1), "?");
}
END_TEST

START_TEST(ids_are_shown_in_hexadecimal)
{
    struct request_id id = {.bytes = {0x00, 0x01, 0x9a, 0xf0, [14] = 0x0f, 0xff}};
    char text[ID_TEXT_MAX];
    ck_assert_str_eq(request_id_text(&id, text), "00019af0000000000000000000000fff");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_schema");
    TCase *schema = tcase_create("schema");
    tcase_add_test(schema, no_message_contains_itself);
    tcase_add_test(schema, only_agreed_types_are_used);
    tcase_add_test(schema, every_field_has_its_member);
    tcase_add_test(schema, enums_agree_with_those_inside);
    tcase_add_test(schema, ids_are_shown_in_hexadecimal);
    suite_add_tcase(suite, schema);
    return runner_run(suite);
}
