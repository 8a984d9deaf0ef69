// SPDX-License-Identifier: Apache-2.0
// The backend's own kernels as a provider: what a backward takes is known before it is run, and
// lent to it alone.
#include "tests/support/runner.h"

#include <stdlib.h>

#include "kernels/provider.h"

static char scratch[512];
static struct {
    void *memory;
    size_t bytes;
    int backwards;
    bool biased;
} lent;

static enum status fake_forward(struct attention_backend *backend,
                                const struct attention_forward *args, struct error *error)
{
    (void)backend;
    (void)args;
    (void)error;
    ck_assert_ptr_null(lent.memory);
    return STATUS_OK;
}

static enum status fake_backward(struct attention_backend *backend,
                                 const struct attention_backward *args, struct error *error)
{
    (void)backend;
    (void)error;
    lent.backwards++;
    ck_assert_ptr_eq(lent.memory, args->shape.deterministic ? scratch : NULL);
    ck_assert_uint_eq(lent.bytes, args->shape.deterministic ? 300 : 0);
    return STATUS_OK;
}

static enum status fake_scratch(struct attention_backend *backend,
                                const struct attention_backward *args, size_t *bytes,
                                struct error *error)
{
    (void)backend;
    ck_assert_int_eq(args->bias != NULL, lent.biased);
    ck_assert_int_eq(args->dbias != NULL, lent.biased);
    ck_assert_int_eq(args->slice_count, 7);
    *bytes = args->shape.deterministic ? 300 : 0;
    return args->shape.heads == 13 ? error_set(error, STATUS_RESOURCE_EXHAUSTED, "too many")
                                   : STATUS_OK;
}

static void fake_lend(struct attention_backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    lent.memory = memory;
    lent.bytes = bytes;
}

static const struct attention_kernels fake_kernels = {.forward = fake_forward,
                                                      .backward = fake_backward,
                                                      .backward_scratch = fake_scratch,
                                                      .lend = fake_lend};
static const struct backend_ops fake_ops = {.name = "fake", .attention = &fake_kernels};

static struct own_provider own;
static struct error error;

static void setup(void)
{
    lent.memory = NULL;
    lent.bytes = 0;
    lent.backwards = 0;
    lent.biased = false;
    own_provider_init(&own, &fake_ops, NULL);
}

// Prepares an operation, runs it, and returns the scratch that it is admitted with.
static size_t run(const struct attention_op *op)
{
    const struct provider_ops *ops = own.base.ops;
    struct prepared_op *prepared;
    size_t bytes = 0;
    ck_assert_int_eq(ops->prepare(&own.base, op, &prepared, &bytes, &error), STATUS_OK);
    const struct attention_forward forward = {.shape = op->shape};
    const struct attention_backward backward = {.shape = op->shape};
    ck_assert_int_eq(op->backward ? ops->backward(&own.base, prepared, &backward, scratch, &error)
                                  : ops->forward(&own.base, prepared, &forward, scratch, &error),
                     STATUS_OK);
    ck_assert_ptr_null(lent.memory);
    ck_assert_uint_eq(lent.bytes, 0);
    ops->discard(&own.base, prepared);
    return bytes;
}

START_TEST(a_backward_is_lent_what_it_takes)
{
    struct attention_op op = {.shape = {.deterministic = true}, .backward = true, .slice_count = 7};
    ck_assert_uint_eq(run(&op), 300);
    ck_assert_int_eq(lent.backwards, 1);
    op.bias = op.dbias = lent.biased = true;
    ck_assert_uint_eq(run(&op), 300);
}
END_TEST

START_TEST(others_take_nothing)
{
    struct attention_op op = {.backward = true, .slice_count = 7};
    ck_assert_uint_eq(run(&op), 0);
    op = (struct attention_op){.shape = {.deterministic = true}};
    ck_assert_uint_eq(run(&op), 0);
}
END_TEST

START_TEST(what_cannot_be_counted_is_refused)
{
    const struct attention_op op = {.shape = {.heads = 13}, .backward = true, .slice_count = 7};
    struct prepared_op *prepared;
    size_t bytes = 0;
    ck_assert_int_eq(own.base.ops->prepare(&own.base, &op, &prepared, &bytes, &error),
                     STATUS_RESOURCE_EXHAUSTED);
}
END_TEST

static Suite *own_suite(void)
{
    Suite *suite = suite_create("own kernels");
    TCase *tcase = tcase_create("provider");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_backward_is_lent_what_it_takes);
    tcase_add_test(tcase, others_take_nothing);
    tcase_add_test(tcase, what_cannot_be_counted_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(own_suite());
}
