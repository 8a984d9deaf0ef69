// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/harness.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/dtype.h"

#define FAILURE_LINES_MAX 12
#define EXIT_SKIPPED      77

struct attention_backend *harness_cuda, *harness_cpu;

static uint64_t random_state;
static int failures; // of the running test

bool harness_folds(void)
{
    int device, major;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (major != 9)
        harness_note("nothing folds on this device");
    return major == 9;
}

bool harness_small(void)
{
    const char *small = getenv("CPATTN_TEST_SMALL");
    return small && *small;
}

// ---- random numbers ----

// SplitMix64.
uint64_t harness_random(void)
{
    uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int64_t harness_below(int64_t n)
{
    return (int64_t)(harness_random() % (uint64_t)n);
}

int64_t harness_between(int64_t low, int64_t high)
{
    return low + harness_below(high - low + 1);
}

float harness_uniform(void)
{
    return (float)((double)(int64_t)(harness_random() >> 40) * 0x1p-23 - 1);
}

// ---- failures ----

void harness_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("# ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void harness_fail(const char *file, int line, const char *what, const char *format, ...)
{
    if (++failures > FAILURE_LINES_MAX)
        return;
    va_list list;
    va_start(list, format);
    printf("# %s:%d: %s: ", file, line, what);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void harness_cuda_check(cudaError_t error, const char *file, int line, const char *call)
{
    if (error == cudaSuccess)
        return;
    printf("Bail out! %s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(1);
}

void harness_finish(void)
{
    struct error error;
    enum status status = attention_cuda_finish(harness_cuda, &error);
    if (status == STATUS_OK)
        return;
    EXPECT(status == STATUS_OK, "%s", error.text);
    // Errors of kernels are sticky: all later calls would return them again.
    if (cudaDeviceSynchronize() != cudaSuccess) {
        printf("Bail out! %s\n", error.text);
        exit(1);
    }
}

// ---- memory on host and device ----

#define GUARD_BYTES_MAX 4096
#define GUARD           0xa5

// Guard bytes on each side of a device buffer. None with CPATTN_TEST_SMALL: a memory checker finds
// accesses outside of an allocation, but guards are inside.
static size_t guard_bytes(void)
{
    return harness_small() ? 0 : GUARD_BYTES_MAX;
}

struct twin twin_create(size_t bytes, size_t skew)
{
    struct twin t = {.bytes = bytes, .host = malloc(bytes + 1)};
    size_t guard = guard_bytes(), all = guard + skew + bytes + guard;
    if (!t.host)
        abort();
    memset(t.host, 0xff, bytes);
    CUDA(cudaMalloc((void **)&t.guarded, all + (all == 0)));
    t.device = t.guarded + guard + skew;
    CUDA(cudaMemset(t.guarded, GUARD, all));
    CUDA(cudaMemset(t.device, 0xff, bytes));
    CUDA(cudaDeviceSynchronize()); // the backend's stream does not wait for the default stream
    return t;
}

void twin_push(const struct twin *t)
{
    CUDA(cudaMemcpy(t->device, t->host, t->bytes, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
}

void *twin_fetch(const struct twin *t)
{
    void *copy = malloc(t->bytes + 1);
    if (!copy)
        abort();
    harness_finish();
    CUDA(cudaMemcpy(copy, t->device, t->bytes, cudaMemcpyDeviceToHost));
    return copy;
}

static void guard_check(const char *device, size_t bytes, const char *where)
{
    unsigned char guard[GUARD_BYTES_MAX + 256];
    CUDA(cudaMemcpy(guard, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (guard[i] != GUARD) {
            EXPECT(guard[i] == GUARD, "byte %zu of %zu %s the memory was written to", i, bytes,
                   where);
            return;
        }
}

void twin_destroy(struct twin *t)
{
    if (!t->guarded)
        return;
    guard_check(t->guarded, (size_t)(t->device - t->guarded), "in front of");
    guard_check(t->device + t->bytes, guard_bytes(), "behind");
    CUDA(cudaFree(t->guarded));
    free(t->host);
    *t = (struct twin){0};
}

void twin_fill_floats(const struct twin *t, float scale)
{
    for (size_t i = 0; i < t->bytes / sizeof(float); i++)
        ((float *)(void *)t->host)[i] = scale * harness_uniform();
}

void twin_fill_dtype(const struct twin *t, enum case_dtype dtype, float scale)
{
    for (size_t i = 0; i < t->bytes / (size_t)dtype_bytes(dtype); i++)
        dtype_store(dtype, t->host, (int64_t)i, scale * harness_uniform());
}

// ---- prepared operations ----

struct prepared prepared_create(const struct attention_op *op)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    struct prepared x = {0};
    struct error error;
    EXPECT(kernels->prepare(harness_cuda, op, &x.work, &x.needs, &error) == STATUS_OK, "%s",
           error.text);
    x.table = twin_create(x.needs.table_bytes, 0);
    x.zeros = twin_create(x.needs.zero_bytes, 0);
    x.scratch = twin_create(x.needs.scratch_bytes, 0);
    memset(x.zeros.host, 0, x.zeros.bytes);
    twin_push(&x.zeros);
    if (x.needs.table_bytes > 0) {
        kernels->place(harness_cuda, x.work, x.table.host, x.table.device, x.zeros.device);
        twin_push(&x.table);
    }
    return x;
}

void prepared_destroy(struct prepared *x)
{
    backend_cuda.attention->discard(harness_cuda, x->work);
    harness_finish();
    twin_destroy(&x->table);
    twin_destroy(&x->zeros);
    twin_destroy(&x->scratch);
}

// ---- running tests ----

static bool chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return argc <= 1;
}

// CPATTN_TEST_SEED; if it is unset, the time in nanoseconds.
static uint64_t seed_choose(void)
{
    const char *text = getenv("CPATTN_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return text ? strtoull(text, NULL, 0) : (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// True if both backends exist. If not, `reason` has the cause.
static bool backends_create(struct error *reason)
{
    if (backend_cuda.create(&harness_cuda, reason) != STATUS_OK)
        return false;
    return backend_cpu.create(&harness_cpu, reason) == STATUS_OK;
}

static bool test_run(const struct harness_test *test, int number, uint64_t seed)
{
    struct timespec start, end;
    random_state = seed;
    for (const char *c = test->name; *c; c++)
        random_state = random_state * 31 + (unsigned char)*c;
    failures = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    test->run();
    harness_finish();
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (end.tv_nsec - start.tv_nsec);
    if (failures > FAILURE_LINES_MAX)
        harness_note("%d failures in all", failures);
    printf("%sok %d - %s # %.2f s\n", failures ? "not " : "", number, test->name, seconds);
    fflush(stdout);
    return failures == 0;
}

int harness_run(const struct harness_test *tests, int count, int argc, char **argv)
{
    struct error reason;
    if (!backends_create(&reason)) {
        printf("1..0 # SKIP %s\n", reason.text);
        return EXIT_SKIPPED;
    }
    uint64_t seed = seed_choose();
    harness_note("CPATTN_TEST_SEED=%" PRIu64, seed);
    int number = 0, failed = 0;
    for (int i = 0; i < count; i++)
        if (chosen(tests[i].name, argc, argv))
            failed += !test_run(&tests[i], ++number, seed);
    printf("1..%d\n", number);
    backend_cuda.destroy(harness_cuda);
    backend_cpu.destroy(harness_cpu);
    return failed > 0;
}
