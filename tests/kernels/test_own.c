// SPDX-License-Identifier: Apache-2.0
// Tests the provider of a backend's own kernels. If the backend has prepare(), operations are
// prepared, placed, launched and discarded; otherwise forward() and backward() compute at once.
#include "tests/support/runner.h"

#include <string.h>

#include "kernels/provider.h"

static char scratch[512], host[64], device[64], zeros[8];
// Numbers of calls of the fake kernels below. at_once: forward() and backward().
static struct {
    int at_once, prepared, placed, forwards, backwards, discarded;
} calls;

static enum status forward(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error)
{
    (void)backend;
    (void)args;
    (void)error;
    calls.at_once++;
    return STATUS_OK;
}

static enum status backward(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error)
{
    (void)backend;
    (void)args;
    (void)error;
    calls.at_once++;
    return STATUS_OK;
}

struct attention_work {
    int slice_count;
};

static struct attention_work the_work;

static enum status prepare(struct attention_backend *backend, const struct attention_op *op,
                           struct attention_work **work, struct op_needs *needs,
                           struct error *error)
{
    (void)backend;
    calls.prepared++;
    if (op->shape.heads == 13)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "too many");
    the_work.slice_count = op->slice_count;
    *work = &the_work;
    *needs = (struct op_needs){.table_bytes = 64, .zero_bytes = 8, .scratch_bytes = 300};
    return STATUS_OK;
}

static void place(struct attention_backend *backend, struct attention_work *work, void *to,
                  const void *there, void *cleared)
{
    (void)backend;
    calls.placed++;
    ck_assert_ptr_eq(work, &the_work);
    ck_assert_ptr_eq(to, host);
    ck_assert_ptr_eq(there, device);
    ck_assert_ptr_eq(cleared, zeros);
}

static enum status launch_forward(struct attention_backend *backend,
                                  const struct attention_work *work,
                                  const struct attention_forward *args, void *memory,
                                  struct error *error)
{
    (void)backend;
    calls.forwards++;
    ck_assert_ptr_eq(work, &the_work);
    ck_assert_ptr_eq(memory, scratch);
    return error_set(error, STATUS_INTERNAL, "%d heads", args->shape.heads);
}

static enum status launch_backward(struct attention_backend *backend,
                                   const struct attention_work *work,
                                   const struct attention_backward *args, void *memory,
                                   struct error *error)
{
    (void)backend;
    (void)args;
    (void)error;
    calls.backwards++;
    ck_assert_ptr_eq(work, &the_work);
    ck_assert_ptr_eq(memory, scratch);
    return STATUS_OK;
}

static void discard(struct attention_backend *backend, struct attention_work *work)
{
    (void)backend;
    ck_assert_ptr_eq(work, &the_work);
    calls.discarded++;
}

static const struct attention_kernels at_once_kernels = {.forward = forward, .backward = backward};
static const struct attention_kernels prepared_kernels = {.forward = forward,
                                                          .backward = backward,
                                                          .prepare = prepare,
                                                          .place = place,
                                                          .launch_forward = launch_forward,
                                                          .launch_backward = launch_backward,
                                                          .discard = discard};
static const struct backend_ops at_once = {.name = "at once", .attention = &at_once_kernels};
static const struct backend_ops prepares = {.name = "prepares", .attention = &prepared_kernels};

static struct own_provider own;
static struct error error;

static void setup(void)
{
    memset(&calls, 0, sizeof(calls));
}

// ---- tests ----

START_TEST(operations_are_prepared_launched_and_discarded)
{
    const struct provider_ops *ops;
    struct attention_op op = {.shape = {.heads = 2}, .slice_count = 7};
    const struct attention_forward forward_args = {.shape = op.shape};
    const struct attention_backward backward_args = {.shape = op.shape};
    struct prepared_op *prepared;
    struct op_needs needs = {0};
    own_provider_init(&own, &prepares, NULL);
    ops = own.base.ops;
    ck_assert_int_eq(ops->prepare(&own.base, &op, &prepared, &needs, &error), STATUS_OK);
    ck_assert_int_eq(the_work.slice_count, 7);
    ck_assert_uint_eq(needs.table_bytes, 64);
    ck_assert_uint_eq(needs.zero_bytes, 8);
    ck_assert_uint_eq(needs.scratch_bytes, 300);
    ops->place(&own.base, prepared, host, device, zeros);
    ck_assert_int_eq(ops->forward(&own.base, prepared, &forward_args, scratch, &error),
                     STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "2 heads");
    ck_assert_int_eq(ops->backward(&own.base, prepared, &backward_args, scratch, &error),
                     STATUS_OK);
    ops->discard(&own.base, prepared);
    ck_assert_int_eq(calls.at_once, 0);
    ck_assert_int_eq(calls.placed, 1);
    ck_assert_int_eq(calls.forwards, 1);
    ck_assert_int_eq(calls.backwards, 1);
    ck_assert_int_eq(calls.discarded, 1);
}
END_TEST

START_TEST(without_preparation_kernels_run_at_once)
{
    const struct provider_ops *ops;
    struct attention_op op = {.slice_count = 7};
    const struct attention_forward forward_args = {.shape = op.shape};
    const struct attention_backward backward_args = {.shape = op.shape};
    struct prepared_op *prepared = (struct prepared_op *)&op;
    struct op_needs needs = {0};
    own_provider_init(&own, &at_once, NULL);
    ops = own.base.ops;
    ck_assert_int_eq(ops->prepare(&own.base, &op, &prepared, &needs, &error), STATUS_OK);
    ck_assert_ptr_null(prepared);
    ck_assert_uint_eq(needs.table_bytes + needs.zero_bytes + needs.scratch_bytes, 0);
    ck_assert_int_eq(ops->forward(&own.base, prepared, &forward_args, NULL, &error), STATUS_OK);
    ck_assert_int_eq(ops->backward(&own.base, prepared, &backward_args, NULL, &error), STATUS_OK);
    ck_assert_int_eq(calls.at_once, 2);
    ops->discard(&own.base, prepared);
}
END_TEST

START_TEST(failed_preparation_is_refused)
{
    const struct attention_op op = {.shape = {.heads = 13}};
    struct prepared_op *prepared;
    struct op_needs needs = {0};
    own_provider_init(&own, &prepares, NULL);
    ck_assert_int_eq(own.base.ops->prepare(&own.base, &op, &prepared, &needs, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(calls.discarded, 0);
}
END_TEST

static Suite *own_suite(void)
{
    Suite *suite = suite_create("own kernels");
    TCase *tcase = tcase_create("provider");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, operations_are_prepared_launched_and_discarded);
    tcase_add_test(tcase, without_preparation_kernels_run_at_once);
    tcase_add_test(tcase, failed_preparation_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(own_suite());
}
