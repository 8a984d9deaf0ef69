// SPDX-License-Identifier: Apache-2.0
// The host's part of a check of device memory. It copies given inputs from the device to the host,
// and expected values and the bias of placed tokens from the host to the device. The device is
// simulated; its pointers are invalid on the host.
#include "tests/support/runner.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "client/cpattn.h"

// ---- a device -----------------------------------------------------------------------------------

#define NOWHERE ((uintptr_t)1 << 63)

static void *hidden(const void *host)
{
    return (void *)((uintptr_t)host | NOWHERE);
}

static char *element(const struct device_array *a, int64_t row, int head)
{
    char *data = (char *)((uintptr_t)a->array->data & ~NOWHERE);
    ck_assert_ptr_ne(data, a->array->data);
    return data + array_offset(a->array, row, head) * (int64_t)a->element_bytes;
}

static enum status fake_open(int device, void *stream, struct device_judge **judge,
                             struct error *error)
{
    (void)device;
    (void)stream;
    (void)error;
    *judge = NULL;
    return STATUS_OK;
}

static void fake_close(struct device_judge *judge)
{
    (void)judge;
}

static enum status fake_get(struct device_judge *judge, const struct device_array *a, void *host,
                            struct error *error)
{
    (void)judge;
    (void)error;
    size_t bytes = (size_t)a->shape.dim * a->element_bytes;
    for (int64_t row = 0; row < a->shape.rows; row++)
        for (int head = 0; head < a->shape.heads; head++)
            memcpy((char *)host + (size_t)(row * a->shape.heads + head) * bytes,
                   element(a, row, head), bytes);
    return STATUS_OK;
}

static enum status fake_put(struct device_judge *judge, const struct device_array *a,
                            const void *host, struct error *error)
{
    (void)judge;
    (void)error;
    size_t bytes = (size_t)a->shape.dim * a->element_bytes;
    for (int64_t row = 0; row < a->shape.rows; row++)
        for (int head = 0; head < a->shape.heads; head++)
            memcpy(element(a, row, head),
                   (const char *)host + (size_t)(row * a->shape.heads + head) * bytes, bytes);
    return STATUS_OK;
}

static const struct check_device fake_device = {
    .open = fake_open, .close = fake_close, .get = fake_get, .put = fake_put};

// ---- checks -------------------------------------------------------------------------------------

static struct cpattn_check *on_host, *on_device;
static struct cpattn_error public_error;

static struct cpattn_check *check_make(void)
{
    static const char *const fields[][2] = {
        {"world_size", "2"}, {"heads", "4"},     {"kv_heads", "2"}, {"seqlen", "13"},
        {"head_dim", "8"},   {"format", "sbhd"}, {"bias", "b1ss"}};
    struct cpattn_case *c = cpattn_case_create();
    struct cpattn_check *check;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        ck_assert_int_eq(cpattn_case_set(c, fields[i][0], fields[i][1], &public_error), CPATTN_OK);
    ck_assert_int_eq(cpattn_check_create(c, 1, &check, &public_error), CPATTN_OK);
    cpattn_case_destroy(c);
    return check;
}

static void setup(void)
{
    struct error error;
    on_host = check_make();
    on_device = check_make();
    ck_assert_int_eq(device_use(on_device, &fake_device, 0, NULL, &error), STATUS_OK);
}

static void teardown(void)
{
    cpattn_check_destroy(on_host);
    cpattn_check_destroy(on_device);
}

// An array with gaps between heads, once for each of the two checks. `there` is the memory behind
// the device's pointer.
struct twins {
    struct cpattn_array host, device;
    size_t bytes;
    char *there;
};

static struct twins twins_make(enum cpattn_tensor tensor, struct cpattn_shape s)
{
    struct twins t = {.host = {.row_stride = s.heads * (s.dim + 3), .head_stride = s.dim + 3}};
    t.bytes = (size_t)(s.rows * t.host.row_stride) * tensor_element_bytes(&on_host->c, tensor) + 64;
    t.host.data = calloc(1, t.bytes);
    t.there = calloc(1, t.bytes);
    t.device = t.host;
    t.device.data = hidden(t.there);
    return t;
}

static void twins_assert_same(struct twins *t)
{
    ck_assert_mem_eq(t->host.data, t->there, t->bytes);
    free(t->host.data);
    free(t->there);
}

static void inputs_give(void)
{
    struct cpattn_array host[CPATTN_TENSORS] = {0}, device[CPATTN_TENSORS] = {0};
    for (int i = CPATTN_TENSOR_Q; i <= CPATTN_TENSOR_DO; i++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)i;
        struct twins t = twins_make(tensor, cpattn_check_whole(on_host, tensor));
        uint16_t *at = t.host.data;
        for (size_t k = 0; k < t.bytes / 2; k++)
            at[k] = (uint16_t)(0x3f00 + k * 37 % 128 + (k % 3 ? 0 : 0x8000));
        memcpy(t.there, t.host.data, t.bytes);
        host[i] = t.host;
        device[i] = t.device;
    }
    ck_assert_int_eq(cpattn_check_give(on_host, host, CPATTN_TENSORS, &public_error), CPATTN_OK);
    ck_assert_int_eq(cpattn_check_give(on_device, device, CPATTN_TENSORS, &public_error),
                     CPATTN_OK);
    for (int i = 0; i < CPATTN_TENSORS; i++) {
        free(host[i].data);
        if (device[i].data)
            free((void *)((uintptr_t)device[i].data & ~NOWHERE));
    }
}

static void expectations_compare(void)
{
    for (int i = CPATTN_TENSOR_OUT; i <= CPATTN_TENSOR_DV; i++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)i;
        struct twins t = twins_make(tensor, cpattn_check_shape(on_host, tensor));
        ck_assert_int_eq(cpattn_check_expected(on_host, tensor, &t.host, &public_error), CPATTN_OK);
        ck_assert_int_eq(cpattn_check_expected(on_device, tensor, &t.device, &public_error),
                         CPATTN_OK);
        twins_assert_same(&t);
    }
}

START_TEST(expected_values_are_copied_to_the_device)
{
    expectations_compare();
}
END_TEST

START_TEST(given_inputs_are_read_from_the_device)
{
    inputs_give();
    expectations_compare();
}
END_TEST

START_TEST(the_bias_of_placed_tokens_is_copied_to_the_device)
{
    const int32_t sequences[] = {1, 0, 1};
    const int64_t positions[] = {4, 12, 0};
    ck_assert_int_eq(
        cpattn_check_place(on_host, CPATTN_QUERIES, sequences, positions, 3, &public_error),
        CPATTN_OK);
    ck_assert_int_eq(
        cpattn_check_place(on_device, CPATTN_QUERIES, sequences, positions, 3, &public_error),
        CPATTN_OK);
    struct twins t =
        twins_make(CPATTN_TENSOR_BIAS, cpattn_check_shape(on_host, CPATTN_TENSOR_BIAS));
    ck_assert_int_eq(cpattn_check_fill(on_host, CPATTN_TENSOR_BIAS, &t.host, &public_error),
                     CPATTN_OK);
    ck_assert_int_eq(cpattn_check_fill(on_device, CPATTN_TENSOR_BIAS, &t.device, &public_error),
                     CPATTN_OK);
    twins_assert_same(&t);
}
END_TEST

START_TEST(the_gradient_of_a_placed_bias_is_refused)
{
    const int64_t positions[] = {4, 12, 0};
    struct cpattn_array arrays[CPATTN_TENSORS] = {0};
    struct cpattn_check_verdict *verdict;
    ck_assert_int_eq(
        cpattn_check_place(on_device, CPATTN_QUERIES, NULL, positions, 3, &public_error),
        CPATTN_OK);
    arrays[CPATTN_TENSOR_DBIAS] = (struct cpattn_array){hidden(&verdict), 13, 13, 0, 0};
    ck_assert_int_eq(
        cpattn_check_verify(on_device, arrays, CPATTN_TENSORS, &verdict, &public_error),
        CPATTN_UNIMPLEMENTED);
    ck_assert_str_eq(public_error.text, "dbias of named tokens is judged in host memory only");
}
END_TEST

static Suite *device_suite(void)
{
    Suite *suite = suite_create("memory of a device");
    TCase *tcase = tcase_create("check");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, expected_values_are_copied_to_the_device);
    tcase_add_test(tcase, given_inputs_are_read_from_the_device);
    tcase_add_test(tcase, the_bias_of_placed_tokens_is_copied_to_the_device);
    tcase_add_test(tcase, the_gradient_of_a_placed_bias_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(device_suite());
}
