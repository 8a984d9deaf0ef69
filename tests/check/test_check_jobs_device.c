// SPDX-License-Identifier: Apache-2.0
// Checks of collectives and layers in device memory give the same verdicts as on the host. The
// device is simulated; its pointers are invalid on the host.
#include "tests/support/runner.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "client/cpattn.h"
#include "judge/collective.h"
#include "judge/linear_view.h"

// ---- a device -----------------------------------------------------------------------------------

#define NOWHERE ((uintptr_t)1 << 63)

static int begun, followed; // calls of jobs_begin; those of them without jobs_end so far
static void *room;

static void *hidden(const void *host)
{
    return (void *)((uintptr_t)host | NOWHERE);
}

static void *shown(const void *device)
{
    ck_assert_int_eq(followed, 1);
    ck_assert(!device || (uintptr_t)device & NOWHERE);
    return (void *)((uintptr_t)device & ~NOWHERE);
}

static enum status fake_set(void *queue, void *data, int value, size_t bytes, struct error *error)
{
    return collective_judge_host.set(queue, shown(data), value, bytes, error);
}

static enum status fake_read(void *queue, const void *data, size_t bytes, void *to,
                             struct error *error)
{
    return collective_judge_host.read(queue, shown(data), bytes, to, error);
}

static enum status fake_fill(void *queue, const struct collective *c, int rank, void *send,
                             struct error *error)
{
    return collective_judge_host.fill(queue, c, rank, shown(send), error);
}

static enum status fake_receive(void *queue, const struct collective *c, int rank,
                                const void *receive, struct figures *figures, struct error *error)
{
    return collective_judge_host.receive(queue, c, rank, shown(receive), figures, error);
}

static enum status fake_send(void *queue, const struct collective *c, int rank, const void *send,
                             const void *receive, struct figures *figures, struct error *error)
{
    return collective_judge_host.send(queue, c, rank, shown(send), shown(receive), figures, error);
}

static enum status fake_digest(void *queue, const void *data, size_t bytes, void *spare,
                               uint64_t *digest, struct error *error)
{
    ck_assert((uintptr_t)data % 8 == 0 || shown(spare) == room);
    return collective_judge_host.digest(queue, shown(data), bytes, NULL, digest, error);
}

static const struct collective_judge fake_collective = {fake_set,     fake_read, fake_fill,
                                                        fake_receive, fake_send, fake_digest};

static enum status layer_fill(void *queue, const struct linear *l, int rank,
                              enum linear_tensor tensor, void *data, struct error *error)
{
    return linear_tools_host.fill(queue, l, rank, tensor, shown(data), error);
}

static enum status layer_sums(void *queue, const struct linear *l, struct linear_some tokens,
                              bool rival, struct triple out[LINEAR_TENSORS], struct error *error)
{
    return linear_tools_host.sums(queue, l, tokens, rival, out, error);
}

static enum status layer_shares(void *queue, const struct linear *l, int rank,
                                struct linear_some features, bool rival,
                                struct triple out[LINEAR_TENSORS], struct error *error)
{
    return linear_tools_host.shares(queue, l, rank, features, rival, out, error);
}

static enum status layer_read(void *queue, const struct linear_view *v, int64_t rows,
                              int64_t columns, double *values, struct error *error)
{
    struct linear_view there = *v;
    there.data = shown(v->data);
    return linear_tools_host.read(queue, &there, rows, columns, values, error);
}

static const struct linear_tools fake_linear = {layer_fill, layer_sums, layer_shares, layer_read};

static enum status fake_open(int device, void *stream, struct device_judge **judge,
                             struct error *error)
{
    (void)stream;
    *judge = NULL;
    return device == 0 ? STATUS_OK
                       : error_set(error, STATUS_UNAVAILABLE, "there is no device %d", device);
}

static void fake_close(struct device_judge *judge)
{
    (void)judge;
}

static void fake_begin(struct device_judge *judge, struct job_work *work)
{
    (void)judge;
    *work = (struct job_work){&fake_collective, &fake_linear, NULL, 7};
    begun++;
    followed++;
}

static enum status fake_room(struct device_judge *judge, size_t bytes, void **at,
                             struct error *error)
{
    (void)judge;
    (void)error;
    free(room);
    room = malloc(bytes + 1);
    *at = hidden(room);
    return STATUS_OK;
}

static const char *broken; // what the device reports at the end

static enum status fake_end(struct device_judge *judge, const struct job_work *work,
                            struct error *error)
{
    (void)judge;
    ck_assert_int_eq(work->before, 7);
    followed--;
    return broken ? error_set(error, STATUS_INTERNAL, "%s", broken) : STATUS_OK;
}

static const struct check_device fake_device = {.open = fake_open,
                                                .close = fake_close,
                                                .jobs_begin = fake_begin,
                                                .jobs_room = fake_room,
                                                .jobs_end = fake_end};

// ---- two checks of one rank ---------------------------------------------------------------------

#define TENSORS_MAX 16

static struct {
    struct cpattn_check_job *host, *device;
    struct cpattn_check_tensor tensors[TENSORS_MAX];
    char *data[TENSORS_MAX];  // host
    char *there[TENSORS_MAX]; // device: the memory behind its pointers
    int count;
} both;

static struct cpattn_error public_error;
static struct error error;

static void ok(enum cpattn_status status)
{
    ck_assert_msg(status == CPATTN_OK, "%s", public_error.text);
}

static void teardown(void)
{
    for (int i = 0; i < both.count; i++) {
        free(both.data[i]);
        free(both.there[i]);
    }
    cpattn_check_job_destroy(both.host);
    cpattn_check_job_destroy(both.device);
    free(room);
    room = NULL;
    memset(&both, 0, sizeof(both));
    ck_assert_int_eq(followed, 0);
}

// All tensors, filled on both sides with the same bits.
static void begin(const char *kind, const char *const *fields)
{
    struct cpattn_case *c = cpattn_case_create_kind(kind);
    for (; fields[0]; fields += 2)
        ok(cpattn_case_set(c, fields[0], fields[1], &public_error));
    ok(cpattn_check_job_create(c, 1, &both.host, &public_error));
    ok(cpattn_check_job_create(c, 1, &both.device, &public_error));
    ck_assert_int_eq(job_device_use(both.device, &fake_device, 0, NULL, &error), STATUS_OK);
    for (int i = 0; cpattn_check_job_tensor(both.host, i, &both.tensors[i]); i++) {
        const struct cpattn_check_tensor *t = &both.tensors[i];
        both.data[i] = calloc(1, t->bytes + 1);
        both.there[i] = calloc(1, t->bytes + 1);
        ok(cpattn_check_job_fill(both.host, t->name, both.data[i], t->bytes, &public_error));
        ok(cpattn_check_job_fill(both.device, t->name, hidden(both.there[i]), t->bytes,
                                 &public_error));
        ck_assert_mem_eq(both.data[i], both.there[i], t->bytes);
        both.count++;
    }
    cpattn_case_destroy(c);
}

static int find(const char *name)
{
    for (int i = 0; i < both.count; i++)
        if (strcmp(both.tensors[i].name, name) == 0)
            return i;
    ck_abort_msg("no tensor %s", name);
}

static struct cpattn_check_verdict *verify(struct cpattn_check_job *job, bool device)
{
    struct cpattn_check_buffer buffers[TENSORS_MAX];
    struct cpattn_check_verdict *verdict;
    for (int i = 0; i < both.count; i++)
        buffers[i] = (struct cpattn_check_buffer){both.tensors[i].name,
                                                  device ? hidden(both.there[i]) : both.data[i],
                                                  both.tensors[i].bytes};
    ok(cpattn_check_job_verify(job, buffers, both.count, &verdict, &public_error));
    return verdict;
}

// Copies the host's tensors to the device. Both checks give the same verdict; its text has the
// words.
static void expect(bool pass, const char *words)
{
    int before = begun;
    for (int i = 0; i < both.count; i++)
        memcpy(both.there[i], both.data[i], both.tensors[i].bytes);
    struct cpattn_check_verdict *host = verify(both.host, false);
    ck_assert_int_eq(begun, before);
    struct cpattn_check_verdict *device = verify(both.device, true);
    ck_assert_int_eq(begun, before + 1);
    ck_assert_int_eq(cpattn_check_verdict_pass(device), pass);
    ck_assert_str_eq(cpattn_check_verdict_text(device), cpattn_check_verdict_text(host));
    ck_assert_uint_eq(cpattn_check_verdict_digest(device), cpattn_check_verdict_digest(host));
    ck_assert_msg(strstr(cpattn_check_verdict_text(device), words), "%s",
                  cpattn_check_verdict_text(device));
    cpattn_check_verdict_destroy(host);
    cpattn_check_verdict_destroy(device);
}

// ---- collectives --------------------------------------------------------------------------------

START_TEST(a_collective_has_the_verdict_of_the_host)
{
    static const char *const fields[] = {"operation", "broadcast", "world_size", "3",
                                         "count",     "600",       "root",       "1",
                                         "dtype",     "fp16",      NULL};
    begin("collective", fields);
    expect(false, "never written");
    memcpy(both.data[find("receive")], both.data[find("send")], 1200);
    expect(true, "receive");
    both.data[find("send")][7] ^= 1;
    expect(false, "send");
}
END_TEST

// ---- layers -------------------------------------------------------------------------------------

static const char *const row[] = {"layer",        "row", "world_size",  "2",     "dtype", "fp32",
                                  "tokens",       "24",  "in_features", "40",    "bias",  "false",
                                  "out_features", "20",  "training",    "false", NULL};

// y of the whole layer, from the inputs of both ranks.
static void row_compute(void)
{
    struct cpattn_case *c = cpattn_case_create_kind("linear");
    float *y = (float *)(void *)both.data[find("y")], x[24 * 20], w[20 * 20];
    for (const char *const *field = row; field[0]; field += 2)
        ok(cpattn_case_set(c, field[0], field[1], &public_error));
    memset(y, 0, both.tensors[find("y")].bytes);
    for (int rank = 0; rank < 2; rank++) {
        struct cpattn_check_job *job;
        ok(cpattn_check_job_create(c, rank, &job, &public_error));
        ok(cpattn_check_job_fill(job, "x", x, sizeof(x), &public_error));
        ok(cpattn_check_job_fill(job, "w", w, sizeof(w), &public_error));
        for (int i = 0; i < 24; i++)
            for (int k = 0; k < 20; k++) {
                double sum = 0;
                for (int n = 0; n < 20; n++)
                    sum += (double)x[i * 20 + n] * (double)w[k * 20 + n];
                y[i * 20 + k] += (float)sum;
            }
        cpattn_check_job_destroy(job);
    }
    cpattn_case_destroy(c);
}

START_TEST(a_layer_has_the_verdict_of_the_host)
{
    begin("linear", row);
    row_compute();
    expect(true, "y");
    float *y = (float *)(void *)both.data[find("y")];
    for (int i = 0; i < 480; i++)
        y[i] *= 2;
    expect(false, "y is 2 times what it should be");
    row_compute();
    both.data[find("w")][41] ^= 4;
    expect(false, "FAIL w");
}
END_TEST

// ---- the device ---------------------------------------------------------------------------------

START_TEST(errors_of_the_device_are_returned)
{
    static const char *const fields[] = {"count", "8", NULL};
    struct cpattn_check_verdict *verdict;
    begin("collective", fields);
    struct cpattn_check_buffer b = {"receive", hidden(both.there[find("receive")]), 32};
    broken = "the device is gone";
    ck_assert_int_eq(cpattn_check_job_verify(both.device, &b, 1, &verdict, &public_error),
                     CPATTN_INTERNAL);
    ck_assert_str_eq(public_error.text, broken);
    ck_assert_int_eq(
        cpattn_check_job_fill(both.device, "send", hidden(both.there[0]), 32, &public_error),
        CPATTN_INTERNAL);
    broken = NULL;
    ck_assert_int_eq(job_device_use(both.device, &fake_device, 3, NULL, &error),
                     STATUS_UNAVAILABLE);
    ok(cpattn_check_job_fill(both.device, "send", both.data[0], 32, &public_error));
    ck_assert_int_eq(job_device_use(both.device, &fake_device, 0, NULL, &error), STATUS_OK);
    ok(cpattn_check_job_device(both.device, -1, NULL, &public_error));
    ok(cpattn_check_job_fill(both.device, "send", both.data[0], 32, &public_error));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("check_jobs_device");
    TCase *tcase = tcase_create("device");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, a_collective_has_the_verdict_of_the_host);
    tcase_add_test(tcase, a_layer_has_the_verdict_of_the_host);
    tcase_add_test(tcase, errors_of_the_device_are_returned);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
