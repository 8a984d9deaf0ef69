// SPDX-License-Identifier: Apache-2.0
// Given inputs on a device, with a simulated runtime in host memory. A CPU rank whose inputs are
// filled by the device's code has the same figures as a plain CPU rank, and the judge gets the
// given tensors.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rank/cuda/given.h"
#include "rank/session.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define CASES 60

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(dst, src, count);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(dst, src, count);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

enum status device_arena_add(size_t *total, int64_t count, int64_t size, struct error *error)
{
    (void)error;
    *total += (size_t)(count * size);
    return STATUS_OK;
}

// The arena has exactly the size that given_reserve() has counted.
static char *room;
static size_t room_bytes, room_used;

void *device_arena_take(struct device_arena *a, int64_t count, int64_t size)
{
    void *memory = room + room_used;
    (void)a;
    room_used += (size_t)(count * size);
    ck_assert_uint_le(room_used, room_bytes);
    return memory;
}

// ---- a CPU engine that fills inputs with the device's code ----

static const struct engine_ops *plain;
static struct engine_ops changed;
static bool gives_all; // all inputs of the case are given

static void tensors_are_pushed(const struct job *j)
{
    const void *whole[VERIFY_CUDA_GIVEN];
    struct error error;
    room_bytes = room_used = 0;
    ck_assert_int_eq(given_reserve(j, &room_bytes, &error), STATUS_OK);
    room = malloc(room_bytes + 1);
    ck_assert_int_eq(given_push(j, NULL, NULL, whole), cudaSuccess);
    ck_assert_uint_eq(room_used, room_bytes);
    for (int i = 0; i < VERIFY_CUDA_GIVEN; i++) {
        const void *given = j->c->source ? j->c->source->tensors[i] : NULL;
        ck_assert_int_eq(whole[i] != NULL, given != NULL);
        if (given)
            ck_assert_mem_eq(whole[i], given, whole_bytes(j->c, (enum whole_tensor)i));
    }
    free(room);
}

static enum status prepare(struct engine *e, struct job *j, struct error *error)
{
    enum status status = plain->prepare(e, j, error);
    for (int i = 0; i < j->plan->buffer_count && status == STATUS_OK; i++)
        if (j->plan->buffers[i].role != BUFFER_SCRATCH)
            if (gives_all || given_has(j, j->plan->buffers[i].role))
                memset(j->buffers[i], 0xff, (size_t)j->plan->buffers[i].bytes);
    tensors_are_pushed(j);
    return status == STATUS_OK && given_fill(j, NULL) != cudaSuccess ? STATUS_INTERNAL : status;
}

// ---- a case ----

// Runs a case with random given inputs; those whose bit is set in `left_out` are drawn instead.
// `as_on_device`: the device's code fills the inputs.
static struct rank_report run(const struct cp_case *c, unsigned left_out, bool as_on_device)
{
    int fds[1] = {-1}, none[2] = {-1, -1};
    struct transport *transport;
    struct progress progress = {0};
    struct session session;
    struct rank_report report;
    struct error error;
    struct segments segments;
    struct places_frame frame = {.has_given = 1};
    int64_t given, wanted;
    places_init(&frame.places);
    for (int i = 0; i < WHOLE_INPUTS; i++)
        if (whole_bytes(c, (enum whole_tensor)i) > 0 && (left_out >> i & 1) == 0)
            frame.places.given[i] = 0;
    places_lay_out(c, &frame.places, &given, &wanted);
    uint64_t random = 7;
    none[0] = memfd_create("given", MFD_CLOEXEC);
    for (int64_t at = 0; at < given; at += 2) {
        uint16_t bits = (uint16_t)(0x3c00 | (generate_next(&random) & 0x83ff)); // bf16: 2^-7 to 2
        ck_assert_int_eq(pwrite(none[0], &bits, 2, at), 2);
    }
    ck_assert_int_eq(transport_socket_create(0, 1, fds, &transport, &error), STATUS_OK);
    ck_assert_int_eq(session_init(&session, &engine_cpu, NULL, transport, &progress, &error),
                     STATUS_OK);
    gives_all = left_out == 0;
    if (as_on_device) {
        plain = session.engine->ops;
        changed = *plain;
        changed.prepare = prepare;
        session.engine->ops = &changed;
    }
    ck_assert_msg(segments_open(&segments, c, &frame, none, &error) == STATUS_OK, "%s", error.text);
    ck_assert_msg(session_run(&session, c, 1, &segments, &report, &error) == STATUS_OK, "%s",
                  error.text);
    segments_close(&segments);
    session_fini(&session);
    transport->ops->destroy(transport);
    return report;
}

START_TEST(figures_are_those_of_the_host)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct cp_case c;
        generate_case(seed, 1, 40, &c);
        c.dtype = DTYPE_BF16;
        c.verify = VERIFY_FULL;
        if (c.seqlen_q == 0 || c.seqlen_kv == 0)
            continue;
        unsigned left_out = seed % 3 == 2 ? (unsigned)(seed / 3) & ~1U : 0; // q is always given
        struct rank_report host = run(&c, left_out, false), device = run(&c, left_out, true);
        ck_assert_int_gt(host.figures_count, 0);
        ck_assert_int_eq(host.figures_count, device.figures_count);
        ck_assert_int_eq(host.pass, device.pass);
        for (int i = 0; i < host.figures_count; i++) {
            ck_assert_int_eq(host.figures[i].tensor, device.figures[i].tensor);
            ck_assert_double_eq(host.figures[i].rmse_rel, device.figures[i].rmse_rel);
            ck_assert_double_eq(host.figures[i].slope, device.figures[i].slope);
        }
        ck_assert(host.pass);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("given");
    TCase *tcase = tcase_create("given");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, figures_are_those_of_the_host);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
