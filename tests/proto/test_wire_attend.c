// SPDX-License-Identifier: Apache-2.0
// Tensors of a client on the wire: sent places are read. A tensor that does not fit the case is
// refused with its name, its shape and the accepted shape.
#include <stdlib.h>
#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "proto/wire.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define CASES 300

static struct wire_request request_of(const struct cp_case *c)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_RUN, .run = *c};
    memset(request.id.bytes, 7, sizeof(request.id.bytes));
    request.attends = true;
    places_init(&request.places);
    return request;
}

static enum status decode(const Cpattn__V1__Request *message, struct wire_request *request,
                          struct error *error)
{
    size_t size = cpattn__v1__request__get_packed_size(message);
    uint8_t *bytes = malloc(size + 1);
    cpattn__v1__request__pack(message, bytes);
    enum status status = wire_decode_request(bytes, size, request, error);
    free(bytes);
    return status;
}

static Cpattn__V1__Request *message_of(const struct wire_request *request)
{
    struct error error;
    void *data;
    size_t size;
    ck_assert_int_eq(wire_encode_request(request, &data, &size, &error), STATUS_OK);
    Cpattn__V1__Request *message = cpattn__v1__request__unpack(NULL, size, data);
    ck_assert_ptr_nonnull(message);
    free(data);
    return message;
}

START_TEST(sent_tensors_are_read)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct cp_case c;
        struct whole_shape shape;
        struct error error;
        generate_case(seed, 8, 100, &c);
        struct wire_request request = request_of(&c), read;
        for (int i = 0; i < WHOLE_TENSORS; i++) {
            if (!whole_shape(&c, (enum whole_tensor)i, &shape))
                continue;
            if (i < WHOLE_INPUTS && seed % 3)
                request.places.given[i] = (int64_t)seed * 4 + i * 4;
            request.places.wanted[i] = (int64_t)i << 40;
            if (i >= WHOLE_INPUTS && seed % 2)
                request.places.expected[i] = 4 * i;
        }
        Cpattn__V1__Request *message = message_of(&request);
        ck_assert_msg(decode(message, &read, &error) == STATUS_OK, "%s", error.text);
        ck_assert(read.attends);
        ck_assert_mem_eq(&read.places, &request.places, sizeof(read.places));
        cpattn__v1__request__free_unpacked(message, NULL);
    }
}
END_TEST

static Cpattn__V1__TensorPlace *first(Cpattn__V1__Request *message)
{
    return message->run->attend->given[0];
}

static void name_set(Cpattn__V1__TensorPlace *t, const char *name)
{
    free(t->name.data);
    t->name.data = (uint8_t *)strdup(name);
    t->name.len = strlen(name);
}

static void other_size(Cpattn__V1__Request *m)
{
    first(m)->shape[1]++;
}
static void negative_size(Cpattn__V1__Request *m)
{
    first(m)->shape[0] = -2;
}
static void fewer_dims(Cpattn__V1__Request *m)
{
    first(m)->n_shape = 3;
}
static void no_dims(Cpattn__V1__Request *m)
{
    first(m)->n_shape = 0;
}
static void more_dims(Cpattn__V1__Request *m)
{
    int64_t *shape = calloc(1000, sizeof(*shape));
    free(first(m)->shape);
    first(m)->shape = shape;
    first(m)->n_shape = 1000;
}
static void other_dtype(Cpattn__V1__Request *m)
{
    first(m)->dtype = CPATTN__V1__DTYPE__DTYPE_FP32;
}
static void no_dtype(Cpattn__V1__Request *m)
{
    first(m)->dtype = (Cpattn__V1__Dtype)77;
}
static void negative_offset(Cpattn__V1__Request *m)
{
    first(m)->offset = -64;
}
static void unknown_name(Cpattn__V1__Request *m)
{
    name_set(first(m), "quux\x1b[2J and very long besides");
}
static void name_of_result(Cpattn__V1__Request *m)
{
    name_set(first(m), "out");
}
static void name_of_absent(Cpattn__V1__Request *m)
{
    name_set(first(m), "sink");
}
static void twice(Cpattn__V1__Request *m)
{
    name_set(first(m), "k");
}
static void nothing(Cpattn__V1__Request *m)
{
    for (size_t i = 0; i < m->run->attend->n_given; i++)
        cpattn__v1__tensor_place__free_unpacked(m->run->attend->given[i], NULL);
    m->run->attend->n_given = 0;
}

static const struct {
    void (*change)(Cpattn__V1__Request *message);
    const char *text;
} changes[] = {
    {other_size, "attend.given: q is bf16 [2, 513, 8, 128]; accepted is bf16 [2, 512, 8, 128]"},
    {negative_size, "q is bf16 [-2, 512, 8, 128]"},
    {fewer_dims, "q is bf16 [2, 512, 8]; accepted"},
    {no_dims, "q is bf16 []; accepted"},
    {more_dims, "q has 1000 dimensions"},
    {other_dtype, "q is fp32 [2, 512, 8, 128]; accepted is bf16"},
    {no_dtype, "q is ? [2, 512, 8, 128]; accepted is bf16"},
    {negative_offset, "the offset of q is -64"},
    {unknown_name, "there is no tensor 'quux?[2J and ver'"},
    {name_of_result, "there is no tensor 'out'"},
    {name_of_absent, "the case has no sink"},
    {twice, "k is bf16"},
    {nothing, "attend names no tensor"},
};

START_TEST(tensors_of_another_case_are_refused)
{
    struct cp_case c = cases_usual();
    struct wire_request request = request_of(&c), read;
    struct error error = {.text = ""};
    if (changes[_i].change == twice)
        cases_set(&c, "kv_heads", "4");
    request = request_of(&c);
    request.places.given[WHOLE_Q] = 0;
    request.places.given[WHOLE_K] = 1 << 22;
    Cpattn__V1__Request *message = message_of(&request);
    changes[_i].change(message);
    ck_assert_int_eq(decode(message, &read, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, changes[_i].text), "%s", error.text);
    cpattn__v1__request__free_unpacked(message, NULL);
}
END_TEST

START_TEST(a_tensor_comes_once)
{
    struct cp_case c = cases_usual();
    struct wire_request request = request_of(&c), read;
    struct error error = {.text = ""};
    request.places.given[WHOLE_Q] = 0;
    request.places.given[WHOLE_K] = 1 << 22;
    Cpattn__V1__Request *message = message_of(&request);
    twice(message); // q and k have the same shape here
    ck_assert_int_eq(decode(message, &read, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "k comes twice"), "%s", error.text);
    cpattn__v1__request__free_unpacked(message, NULL);
}
END_TEST

START_TEST(places_are_within_their_memory)
{
    struct cp_case c = cases_usual();
    struct whole_places p;
    struct error error;
    int64_t given, wanted;
    places_init(&p);
    p.given[WHOLE_Q] = p.given[WHOLE_V] = p.wanted[WHOLE_OUT] = p.expected[WHOLE_OUT] = 0;
    places_lay_out(&c, &p, &given, &wanted);
    ck_assert_int_eq(given, whole_bytes(&c, WHOLE_Q) + whole_bytes(&c, WHOLE_V));
    ck_assert_int_eq(p.expected[WHOLE_OUT], whole_bytes(&c, WHOLE_OUT));
    ck_assert_int_eq(places_check(&c, &p, given, wanted, &error), STATUS_OK);
    ck_assert_int_eq(places_check(&c, &p, given - 1, wanted, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "given v has"));
    ck_assert_int_eq(places_check(&c, &p, given, wanted - 1, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "expected out has"));
    ck_assert_int_eq(places_check(&c, &p, 0, wanted, &error), STATUS_INVALID_ARGUMENT);
    p.expected[WHOLE_Q] = 0;
    ck_assert_int_eq(places_check(&c, &p, given, wanted, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "expected q: it is an input"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire attend");
    TCase *tcase = tcase_create("attend");
    tcase_add_test(tcase, sent_tensors_are_read);
    tcase_add_loop_test(tcase, tensors_of_another_case_are_refused, 0,
                        (int)(sizeof(changes) / sizeof(*changes)));
    tcase_add_test(tcase, a_tensor_comes_once);
    tcase_add_test(tcase, places_are_within_their_memory);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
