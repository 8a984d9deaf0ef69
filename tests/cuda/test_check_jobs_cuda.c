// SPDX-License-Identifier: Apache-2.0
// Checks of collectives and linear layers in device memory. Inputs have the same bits as on the
// host, and results get the same verdict, at any address and on any stream.
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "client/cpattn.h"
#include "judge/dtype.h"
#include "plan/collective.h"
#include "tests/cuda/harness.h"

check_cuda_table cpattn_check_cuda_table;

#define TENSORS_MAX 16
#define WORLD       3

// ---- two checks of one rank ---------------------------------------------------------------------

struct pair {
    struct cpattn_check_job *host, *device;
    struct cpattn_check_tensor tensors[TENSORS_MAX];
    struct twin data[TENSORS_MAX];
    int count;
};

static struct cpattn_error public_error;

static bool ok(enum cpattn_status status, const char *what)
{
    EXPECT(status == CPATTN_OK, "%s: %s", what, public_error.text);
    return status == CPATTN_OK;
}

static size_t element_of(const struct cpattn_check_tensor *t)
{
    int64_t count = t->dims == 2 ? t->shape[0] * t->shape[1] : t->shape[0];
    return count > 0 ? t->bytes / (size_t)count : 1;
}

// Fills tensor i on host and device, and expects the same bits. `skew`: misalignment of the
// device's tensor, in elements.
static void tensor_fill(struct pair *p, int i, size_t skew)
{
    const struct cpattn_check_tensor *t = &p->tensors[i];
    p->data[i] = twin_create(t->bytes, skew * element_of(t));
    ok(cpattn_check_job_fill(p->host, t->name, p->data[i].host, t->bytes, &public_error), t->name);
    ok(cpattn_check_job_fill(p->device, t->name, p->data[i].device, t->bytes, &public_error),
       t->name);
    char *got = twin_fetch(&p->data[i]);
    EXPECT(memcmp(got, p->data[i].host, t->bytes) == 0, "%s has other bits", t->name);
    free(got);
}

static struct pair pair_open(const struct cpattn_case *c, int rank, cudaStream_t stream)
{
    struct pair p = {.count = 0};
    struct error error = {0};
    ok(cpattn_check_job_create(c, rank, &p.host, &public_error), "host");
    ok(cpattn_check_job_create(c, rank, &p.device, &public_error), "device");
    EXPECT(job_device_use(p.device, cpattn_check_cuda_table(), 0, stream, &error) == STATUS_OK,
           "%s", error.text);
    for (; cpattn_check_job_tensor(p.host, p.count, &p.tensors[p.count]); p.count++)
        tensor_fill(&p, p.count, (size_t)harness_below(4));
    return p;
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < p->count; i++)
        twin_destroy(&p->data[i]);
    cpattn_check_job_destroy(p->host);
    cpattn_check_job_destroy(p->device);
}

static struct cpattn_check_verdict *verdict_of(const struct pair *p, bool device)
{
    struct cpattn_check_buffer buffers[TENSORS_MAX];
    struct cpattn_check_verdict *verdict = NULL;
    for (int i = 0; i < p->count; i++)
        buffers[i] = (struct cpattn_check_buffer){
            p->tensors[i].name, device ? p->data[i].device : p->data[i].host, p->tensors[i].bytes};
    ok(cpattn_check_job_verify(device ? p->device : p->host, buffers, p->count, &verdict,
                               &public_error),
       "a verdict");
    return verdict;
}

static void expect_figures(const struct cpattn_check_verdict *host,
                           const struct cpattn_check_verdict *device)
{
    for (int i = 0; cpattn_check_verdict_figures(host, i); i++) {
        const struct cpattn_figures *a = cpattn_check_verdict_figures(host, i);
        const struct cpattn_figures *b = cpattn_check_verdict_figures(device, i);
        EXPECT(b && a->broken == b->broken && a->elements == b->elements &&
                   a->mismatches == b->mismatches && a->nonfinite == b->nonfinite,
               "%s: %lld and %lld mismatches", a->tensor, (long long)a->mismatches,
               b ? (long long)b->mismatches : -1);
    }
}

// Copies the host's tensors to the device. Expects the same verdict, diagnosis, digest and figures
// from both checks.
static void expect_same(const struct pair *p, const char *what)
{
    for (int i = 0; i < p->count; i++)
        twin_push(&p->data[i]);
    struct cpattn_check_verdict *host = verdict_of(p, false), *device = verdict_of(p, true);
    if (!host || !device)
        return;
    EXPECT(cpattn_check_verdict_pass(host) == cpattn_check_verdict_pass(device), "%s: %s and %s",
           what, cpattn_check_verdict_text(host), cpattn_check_verdict_text(device));
    EXPECT(strcmp(cpattn_check_verdict_diagnosis(host, NULL, NULL),
                  cpattn_check_verdict_diagnosis(device, NULL, NULL)) == 0,
           "%s: %s and %s", what, cpattn_check_verdict_text(host),
           cpattn_check_verdict_text(device));
    EXPECT(cpattn_check_verdict_digest(host) == cpattn_check_verdict_digest(device), "%s: digests",
           what);
    expect_figures(host, device);
    cpattn_check_verdict_destroy(host);
    cpattn_check_verdict_destroy(device);
}

static void bits_spoil(const struct pair *p)
{
    const struct twin *t = &p->data[harness_below(p->count)];
    for (int i = 0; i < 3 && t->bytes > 0; i++)
        t->host[harness_below((int64_t)t->bytes)] ^= 0x21;
}

static void set(struct cpattn_case *c, const char *name, const char *value)
{
    ok(cpattn_case_set(c, name, value, &public_error), name);
}

static void set_number(struct cpattn_case *c, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    set(c, name, text);
}

// ---- collectives --------------------------------------------------------------------------------

static void collective_check(const char *operation, const char *dtype, int64_t count)
{
    struct cpattn_case *c = cpattn_case_create_kind("collective");
    set(c, "operation", operation);
    set(c, "dtype", dtype);
    set(c, "world_size", "3");
    set(c, "specials", count % 2 ? "true" : "false");
    set_number(c, "count", count);
    struct pair p = pair_open(c, (int)harness_below(WORLD), NULL);
    expect_same(&p, operation);
    for (int i = 0; i < 3; i++) {
        bits_spoil(&p);
        expect_same(&p, operation);
    }
    pair_close(&p);
    cpattn_case_destroy(c);
}

static void collectives_have_the_verdict_of_the_host(void)
{
    static const char *const operations[] = {"all_reduce",     "all_gather", "all_to_allv",
                                             "reduce_scatter", "broadcast",  "reduce"};
    static const char *const dtypes[] = {"fp32", "fp16", "bf16", "int32", "int64", "uint8"};
    static const int64_t counts[] = {0, 1, 37, 1000, 100003};
    for (int o = 0; o < 6; o++)
        for (int d = 0; d < 6; d++)
            for (int n = 0; n < (harness_small() ? 3 : 5); n++)
                collective_check(operations[o], dtypes[d], counts[n]);
}

// Verifies a right all_gather while the stream still writes it. The call must wait for the stream,
// so that the result passes.
static void a_call_waits_for_the_stream(void)
{
    struct cpattn_case *c = cpattn_case_create_kind("collective");
    int64_t count = harness_small() ? 1000 : 30000000;
    cudaStream_t stream;
    struct cpattn_check_verdict *verdict;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    set(c, "operation", "all_gather");
    set(c, "world_size", "3");
    set_number(c, "count", count);
    struct pair p = pair_open(c, 0, stream);
    size_t bytes = (size_t)count * 4;
    struct twin right = twin_create(3 * bytes, 0);
    for (int rank = 0; rank < WORLD; rank++) {
        struct pair other = pair_open(c, rank, NULL);
        memcpy(right.host + (size_t)rank * bytes, other.data[0].host, bytes);
        pair_close(&other);
    }
    twin_push(&right);
    for (int i = 0; i < 20; i++)
        CUDA(cudaMemsetAsync(p.data[1].device, i, 3 * bytes, stream));
    CUDA(cudaMemcpyAsync(p.data[1].device, right.device, 3 * bytes, cudaMemcpyDeviceToDevice,
                         stream));
    struct cpattn_check_buffer b = {"receive", p.data[1].device, 3 * bytes};
    if (ok(cpattn_check_job_verify(p.device, &b, 1, &verdict, &public_error), "a verdict")) {
        EXPECT(cpattn_check_verdict_pass(verdict), "%s", cpattn_check_verdict_text(verdict));
        cpattn_check_verdict_destroy(verdict);
    }
    twin_destroy(&right);
    pair_close(&p);
    CUDA(cudaStreamDestroy(stream));
    cpattn_case_destroy(c);
}

// ---- layers -------------------------------------------------------------------------------------

static int tensor_find(const struct pair *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return i;
    abort();
}

static enum case_dtype dtype_of(const char *name)
{
    return strcmp(name, "fp32") == 0   ? DTYPE_FP32
           : strcmp(name, "fp16") == 0 ? DTYPE_FP16
                                       : DTYPE_BF16;
}

// y = x w' + b of a column layer, computed in fp64.
static void column_compute(const struct pair *p, enum case_dtype dtype)
{
    const struct cpattn_check_tensor *x = &p->tensors[tensor_find(p, "x")];
    const struct cpattn_check_tensor *w = &p->tensors[tensor_find(p, "w")];
    int64_t rows = x->shape[0], inner = x->shape[1], columns = w->shape[0];
    float *a = malloc((size_t)inner * 4), *b = malloc((size_t)inner * 4), bias, sum;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            double wide = 0;
            dtype_read(dtype, p->data[tensor_find(p, "x")].host, i * inner, inner, a);
            dtype_read(dtype, p->data[tensor_find(p, "w")].host, k * inner, inner, b);
            dtype_read(dtype, p->data[tensor_find(p, "b")].host, k, 1, &bias);
            for (int64_t n = 0; n < inner; n++)
                wide += (double)a[n] * (double)b[n];
            sum = (float)(wide + (double)bias);
            dtype_write(dtype, &sum, 1,
                        p->data[tensor_find(p, "y")].host +
                            (size_t)(i * columns + k) * (dtype == DTYPE_FP32 ? 4 : 2));
        }
    free(a);
    free(b);
}

static void layer_check(const char *layer, const char *dtype, bool right)
{
    struct cpattn_case *c = cpattn_case_create_kind("linear");
    set(c, "layer", layer);
    set(c, "dtype", dtype);
    set(c, "world_size", "3");
    set_number(c, "tokens", harness_between(1, 60));
    set_number(c, "in_features", harness_between(3, 70));
    set_number(c, "out_features", harness_between(3, 70));
    if (strcmp(layer, "mlp") == 0)
        set_number(c, "hidden", harness_between(3, 90));
    set(c, "training", right ? "false" : "true");
    struct pair p = pair_open(c, (int)harness_below(WORLD), NULL);
    if (right) {
        column_compute(&p, dtype_of(dtype));
        struct cpattn_check_verdict *verdict = verdict_of(&p, false);
        EXPECT(verdict && cpattn_check_verdict_pass(verdict), "%s",
               cpattn_check_verdict_text(verdict));
        cpattn_check_verdict_destroy(verdict);
    }
    expect_same(&p, layer);
    bits_spoil(&p);
    expect_same(&p, layer);
    pair_close(&p);
    cpattn_case_destroy(c);
}

static void layers_have_the_verdict_of_the_host(void)
{
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    for (int i = 0; i < (harness_small() ? 1 : 6); i++)
        for (int d = 0; d < 3; d++) {
            layer_check("column", dtypes[d], true);
            layer_check("column", dtypes[d], false);
            layer_check("row", dtypes[d], false);
            layer_check("mlp", dtypes[d], false);
        }
}

static const struct harness_test tests[] = {
    {"collectives have the verdict of the host", collectives_have_the_verdict_of_the_host},
    {"a call waits for the stream", a_call_waits_for_the_stream},
    {"layers have the verdict of the host", layers_have_the_verdict_of_the_host},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
