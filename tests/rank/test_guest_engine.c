// SPDX-License-Identifier: Apache-2.0
// A guest on a simulated device: the engine is the CPU's, with a device to wait for.
#include <stdlib.h>
#include <string.h>

#include "guest/state.h"
#include "rank/session.h"
#include "tests/support/runner.h"

#define DEVICE 3

const struct engine_kind *const engine_guest_gpu = NULL;

int guest_device(void)
{
    return DEVICE;
}

// ---- the device ----

static struct {
    bool broken;
    int waits, looks;     // of the case
    int waits_at_verdict; // waits before the verdict
} device;

static const struct engine_ops *plain;
static struct engine_ops changed;

static enum status device_wait(struct engine *e, bool look, struct error *error)
{
    (void)e;
    device.waits += !look;
    device.looks += look;
    return device.broken ? error_set(error, STATUS_INTERNAL, "the device: it is broken")
                         : STATUS_OK;
}

static enum status device_verify(struct engine *e, struct job *j, struct error *error)
{
    device.waits_at_verdict = device.waits;
    return plain->verify(e, j, error);
}

static enum status device_create(const struct engine_setup *setup, struct engine **engine,
                                 struct error *error)
{
    enum status status = engine_cpu.create(setup, engine, error);
    if (status != STATUS_OK)
        return status;
    plain = (*engine)->ops;
    changed = *plain;
    changed.wait = device_wait;
    changed.verify = device_verify;
    (*engine)->ops = &changed;
    return STATUS_OK;
}

static const struct engine_kind base = {.create = device_create};

static enum status guest_create(const struct engine_setup *setup, struct engine **engine,
                                struct error *error)
{
    return guest_engine_create(&base, setup, engine, error);
}

static const struct engine_kind kind = {
    .program = "guest", .arguments = "", .create = guest_create};

// ---- the guest ----

static enum { RIGHT, FAILS, BACKWARD } behaviour;

// No query sees a key, so the right results are zeros.
static int attend(struct cpattn_guest_job *job, void *context)
{
    static const char *const names[] = {"out", "dq", "dk", "dv"};
    (void)context;
    ck_assert_int_eq(cpattn_guest_place(job)->device, DEVICE);
    for (int i = 0; i < 4; i++) {
        struct cpattn_guest_tensor tensor;
        ck_assert(cpattn_guest_tensor(job, names[i], &tensor));
        memset(tensor.data, 0, tensor.bytes);
    }
    if (behaviour == FAILS)
        cpattn_guest_fail(job, false, "the ring is broken");
    if (behaviour == BACKWARD) {
        int before = device.waits;
        cpattn_guest_backward(job);
        ck_assert_int_eq(device.waits, before + 1);
    }
    return behaviour == FAILS;
}

static enum status run(struct rank_report *report, struct error *error)
{
    static const struct cpattn_guest program = {.attend = attend};
    int fds[1] = {-1};
    struct transport *transport;
    struct progress progress = {0};
    struct session session;
    struct cp_case c;
    case_init(&c);
    c.world_size = 1;
    c.heads = c.kv_heads = 2;
    c.head_dim_qk = c.head_dim_v = 16;
    c.seqlen_q = 12;
    c.seqlen_kv = 0;
    c.mask = MASK_NONE;
    strcpy(c.implementation, "guest");
    guest_program = &program;
    device.waits = device.looks = device.waits_at_verdict = 0;
    ck_assert_int_eq(transport_socket_create(0, 1, fds, &transport, error), STATUS_OK);
    ck_assert_int_eq(session_init(&session, &kind, NULL, transport, &progress, error), STATUS_OK);
    enum status status = session_run(&session, &c, 1, NULL, report, error);
    session_fini(&session);
    transport->ops->destroy(transport);
    return status;
}

START_TEST(the_verdict_waits_for_the_device)
{
    struct rank_report report;
    struct error error = {0};
    behaviour = RIGHT;
    device.broken = false;
    ck_assert_msg(run(&report, &error) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(report.refusal.status, STATUS_OK);
    ck_assert(report.pass);
    ck_assert_int_eq(device.waits_at_verdict, 1);
    ck_assert_int_eq(device.looks, 0);
}
END_TEST

START_TEST(the_backward_pass_begins_when_the_device_is_through)
{
    struct rank_report report;
    struct error error = {0};
    behaviour = BACKWARD;
    device.broken = false;
    ck_assert_msg(run(&report, &error) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(device.waits_at_verdict, 2);
    ck_assert(report.pass);
}
END_TEST

// The work of a failed function on the device may wait for other ranks for ever.
START_TEST(a_failed_function_is_not_waited_for)
{
    struct rank_report report;
    struct error error = {0};
    behaviour = FAILS;
    device.broken = false;
    ck_assert_msg(run(&report, &error) == STATUS_OK, "%s", error.text);
    ck_assert_int_eq(report.refusal.status, STATUS_UNKNOWN);
    ck_assert_str_eq(report.refusal.text, "the ring is broken");
    ck_assert_int_eq(device.waits, 0);
    ck_assert_int_eq(device.looks, 1);
}
END_TEST

START_TEST(a_broken_device_ends_the_rank)
{
    struct rank_report report;
    struct error error = {0};
    behaviour = RIGHT;
    device.broken = true;
    ck_assert_int_eq(run(&report, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "the device: it is broken");
    behaviour = FAILS;
    ck_assert_int_eq(run(&report, &error), STATUS_INTERNAL);
    ck_assert_str_eq(error.text, "the ring is broken; then: the device: it is broken");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guest_engine");
    TCase *tcase = tcase_create("device");
    tcase_add_test(tcase, the_verdict_waits_for_the_device);
    tcase_add_test(tcase, the_backward_pass_begins_when_the_device_is_through);
    tcase_add_test(tcase, a_failed_function_is_not_waited_for);
    tcase_add_test(tcase, a_broken_device_ends_the_rank);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
