// SPDX-License-Identifier: Apache-2.0
// Compares the elementwise and row operations of the CUDA backend with the CPU's. Also tests its
// errors and memory.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "judge/cuda/digest_cuda.h"
#include "judge/digest_word.h"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/regions_cuda.h"
#include "kernels/dtype.h"
#include "tests/cuda/harness.h"

static const int64_t sizes[] = {0,    1,    2,    3,    4,    5,    7,    8,     9,
                                31,   32,   33,   63,   65,   255,  257,  1023,  1024,
                                1025, 4095, 4096, 4097, 8191, 8192, 8193, 65535, 100003};
#define SIZE_COUNT ((int)(sizeof(sizes) / sizeof(sizes[0])))

// The sizes above, and two more: a random one and a large one.
static int64_t size_at(int i)
{
    if (i < SIZE_COUNT)
        return sizes[i];
    return i == SIZE_COUNT ? harness_below(300000) : harness_small() ? 70001 : 20000003;
}
#define SIZES (SIZE_COUNT + 2)

// ---- errors and memory ----

// The first error is reported, once; later launches work.
static void report_what_went_wrong(void)
{
    struct error error;
    void *host, *device;
    cuda_note(harness_cuda, cudaErrorInvalidValue, "the first");
    cuda_note(harness_cuda, cudaErrorInvalidDevice, "the second");
    EXPECT(attention_cuda_finish(harness_cuda, &error) == STATUS_INTERNAL, "no error");
    EXPECT(strstr(error.text, "the first") && !strstr(error.text, "second"), "%s", error.text);
    EXPECT(attention_cuda_finish(harness_cuda, &error) == STATUS_OK, "reported twice");
    host = staging_take(harness_cuda, (size_t)1 << 50, &device);
    EXPECT(!host, "a petabyte");
    EXPECT(!scratch_take(harness_cuda, SIZE_MAX - 5), "everything");
    EXPECT(attention_cuda_finish(harness_cuda, &error) == STATUS_RESOURCE_EXHAUSTED, "%s",
           error.text);
    // More heads than a grid may have blocks in y (65535), which only the runtime refuses.
    struct attention_shape shape = {.dtype = DTYPE_BF16, .heads = 70000, .q_rows = 1};
    backend_cuda.fill_heads(harness_cuda, &shape, NULL, NULL);
    EXPECT(attention_cuda_finish(harness_cuda, &error) == STATUS_INTERNAL, "70000 heads");
    EXPECT(strstr(error.text, "fill heads"), "%s", error.text);
    EXPECT(attention_cuda_finish(harness_cuda, &error) == STATUS_OK, "it stays");
}

// An illegal address makes the device unusable for the process. So a child process writes to one
// and prints the errors.
#define ILLEGAL "--illegal-address"

static int read_illegal_address(void)
{
    struct attention_backend *backend;
    struct error error = {.status = STATUS_OK};
    if (backend_cuda.create(&backend, &error) != STATUS_OK)
        return 77;
    backend_cuda.fill(backend, NULL, 0, 1000);
    for (int i = 0; i < 2; i++) {
        enum status status = attention_cuda_finish(backend, &error);
        printf("%s %s\n", status_name(status), status == STATUS_OK ? "" : error.text);
    }
    backend_cuda.destroy(backend);
    return 0;
}

static void illegal_addresses_are_told(void)
{
    char command[4096] = "", line[ERROR_TEXT_MAX + 64] = "";
    if (harness_small()) // memory checkers report this error themselves
        return;
    ssize_t length = readlink("/proc/self/exe", command, sizeof(command) - sizeof(ILLEGAL) - 2);
    EXPECT(length > 0, "no name of one's own");
    strcpy(command + length, " " ILLEGAL);
    FILE *child = popen(command, "r");
    for (int i = 0; child && i < 2; i++) { // every report has the error
        EXPECT(fgets(line, sizeof(line), child), "no line");
        EXPECT(strncmp(line, "INTERNAL", 8) == 0 && strstr(line, "a kernel before") &&
                   strstr(line, "cudaErrorIllegalAddress"),
               "%s", line);
    }
    EXPECT(child && pclose(child) == 0, "it failed");
}

// Pieces are aligned. From the second round on they come from a single block, and from the third
// round on no block is allocated.
static void memory_is_recycled(void)
{
    const struct memory_block *warm[2] = {NULL, NULL};
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 300; i++) {
            void *device;
            size_t bytes = 20000 + (size_t)i;
            char *host = staging_take(harness_cuda, bytes, &device);
            char *scratch = scratch_take(harness_cuda, 3 * bytes);
            if (!host || !scratch)
                break;
            EXPECT((uintptr_t)host % 256 == 0 && (uintptr_t)device % 256 == 0, "%p %p",
                   (void *)host, device);
            EXPECT((uintptr_t)scratch % 256 == 0, "%p", (void *)scratch);
            memset(host, i, bytes);
            staging_push(harness_cuda, device, host, bytes);
            staging_pull(harness_cuda, host, device, bytes);
            CUDA(cudaMemsetAsync(scratch, i, 3 * bytes, attention_cuda_stream(harness_cuda)));
        }
        const struct memory_block *staging = harness_cuda->queue.staging.blocks;
        const struct memory_block *scratch = harness_cuda->queue.scratch.blocks;
        EXPECT(round == 0 || (!staging->next && !scratch->next), "several blocks");
        EXPECT(round < 2 || (staging == warm[0] && scratch == warm[1]), "other blocks");
        warm[0] = staging;
        warm[1] = scratch;
        harness_finish();
    }
}

// ---- elementwise ----

// Expects the same bytes; frees both arrays.
static void compare_bytes(void *got, void *expected, size_t bytes, const char *what)
{
    const char *a = got, *b = expected;
    size_t i = 0;
    while (i < bytes && a[i] == b[i])
        i++;
    EXPECT(i == bytes, "%s: byte %zu of %zu", what, i, bytes);
    free(got);
    free(expected);
}

static float *floats(void *memory)
{
    return memory;
}

typedef void binary(struct attention_backend *, const float *, float *, int64_t);

// Expects the bits of the CPU backend, at aligned and unaligned addresses.
static void binary_compare(binary *cuda, binary *cpu, const char *what)
{
    for (int i = 0; i < SIZES; i++) {
        int64_t count = size_at(i);
        size_t bytes = (size_t)count * sizeof(float);
        struct twin x = twin_create(bytes, i % 3 == 1 ? 4 : 0);
        struct twin y = twin_create(bytes, i % 4 == 1 ? 8 : 0);
        twin_fill_floats(&x, 3);
        twin_fill_floats(&y, 3);
        for (int64_t k = 0; k < count; k += 97)
            (floats(x.host))[k] = k % 2 ? INFINITY : -INFINITY;
        for (int64_t k = 5; k < count; k += 331)
            (floats(y.host))[k] = NAN;
        for (int64_t k = 6; k < count; k += 257)
            (floats(x.host))[k] = NAN;
        twin_push(&x);
        twin_push(&y);
        cuda(harness_cuda, floats(x.device), floats(y.device), count);
        float *expected = malloc(bytes + 1);
        memcpy(expected, y.host, bytes);
        cpu(harness_cpu, floats(x.host), expected, count);
        float *got = twin_fetch(&y);
        for (int64_t k = 0; k < count; k++) // all NaN are equal
            if (isnan(got[k]) && isnan(expected[k]))
                got[k] = expected[k];
        compare_bytes(got, expected, bytes, what);
        twin_destroy(&x);
        twin_destroy(&y);
    }
}

static void add(void)
{
    binary_compare(backend_cuda.add, backend_cpu.add, "add");
}

static void max(void)
{
    binary_compare(backend_cuda.max, backend_cpu.max, "max");
}

static void fill(void)
{
    const float values[] = {0, -INFINITY, 1.5f, -0.0f};
    for (int i = 0; i < SIZES; i++) {
        int64_t count = size_at(i);
        struct twin x = twin_create((size_t)count * sizeof(float), (size_t)(i % 4) * 4);
        float *expected = malloc(x.bytes + 1);
        backend_cuda.fill(harness_cuda, floats(x.device), values[i % 4], count);
        backend_cpu.fill(harness_cpu, expected, values[i % 4], count);
        compare_bytes(twin_fetch(&x), expected, x.bytes, "fill");
        twin_destroy(&x);
    }
}

// Several fills in one launch, of all sizes, aligned or not.
static void fill_several(void)
{
    for (int i = 0; i < SIZES; i++) {
        struct twin x[REGION_FILLS_MAX];
        struct region_fill fills[REGION_FILLS_MAX];
        for (int k = 0; k < REGION_FILLS_MAX; k++) {
            int64_t count = size_at((i + 5 * k) % SIZE_COUNT);
            x[k] = twin_create((size_t)count * sizeof(float), (size_t)((i + k) % 4) * 4);
            fills[k] = (struct region_fill){floats(x[k].device), count, k ? (float)k : -INFINITY};
            for (int64_t at = 0; at < count; at++)
                floats(x[k].host)[at] = fills[k].value;
        }
        regions_cuda_fill(harness_cuda, fills, 1 + i % REGION_FILLS_MAX);
        for (int k = 0; k < REGION_FILLS_MAX; k++) {
            char *expected = malloc(x[k].bytes + 1);
            memcpy(expected, x[k].host, x[k].bytes);
            if (k <= i % REGION_FILLS_MAX)
                compare_bytes(twin_fetch(&x[k]), expected, x[k].bytes, "fills");
            else
                free(expected);
            twin_destroy(&x[k]);
        }
    }
}

// Converts the floats of `x` on both backends and expects the same bytes.
static void convert_compare(const struct twin *x, enum case_dtype dtype, size_t skew)
{
    int64_t count = (int64_t)(x->bytes / sizeof(float));
    struct twin y = twin_create((size_t)(count * dtype_bytes(dtype)), skew);
    char *expected = malloc(y.bytes + 1);
    twin_push(x);
    backend_cuda.convert(harness_cuda, dtype, floats(x->device), y.device, count);
    backend_cpu.convert(harness_cpu, dtype, floats(x->host), expected, count);
    compare_bytes(twin_fetch(&y), expected, y.bytes, "convert");
    twin_destroy(&y);
}

static const enum case_dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};

static void convert_sizes(void)
{
    for (int i = 0; i < SIZES; i++)
        for (int d = 0; d < 3; d++) {
            struct twin x = twin_create((size_t)size_at(i) * sizeof(float), i % 3 == 1 ? 4 : 0);
            twin_fill_floats(&x, 100);
            convert_compare(&x, dtypes[d], i % 4 == 1 ? 4 : 0);
            twin_destroy(&x);
        }
}

// All signs, exponents and leading bits; the other bits are near the middle between two values.
static void convert_values(void)
{
    static const uint32_t rests[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000,
                                     0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff};
    const int rest_count = (int)(sizeof(rests) / sizeof(rests[0]));
    struct twin x = twin_create(((size_t)rest_count << 16) * sizeof(float), 0);
    for (uint32_t high = 0; high < 0x10000; high++)
        for (int r = 0; r < rest_count; r++)
            ((uint32_t *)(void *)x.host)[high * (uint32_t)rest_count + (uint32_t)r] =
                high << 16 | rests[r];
    for (int d = 0; d < 3; d++)
        convert_compare(&x, dtypes[d], 0);
    twin_destroy(&x);
}

// ---- rows ----

// Compares fp32 results that were summed in different orders. `tolerance` is relative to the
// largest expected magnitude, which counts as at least 1.
static void expect_close(const float *got, const float *expected, int64_t count, double tolerance,
                         const char *what)
{
    double scale = 1;
    for (int64_t i = 0; i < count; i++)
        scale = fabs(expected[i]) > scale ? fabs(expected[i]) : scale;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - expected[i]) <= tolerance * scale)) {
            EXPECT(got[i] == expected[i], "%s: element %lld of %lld is %g instead of %g", what,
                   (long long)i, (long long)count, got[i], expected[i]);
            return;
        }
}

static void row_dot_compare(struct attention_shape shape, size_t skew)
{
    int64_t count = shape.q_rows * shape.heads;
    struct twin d_out = twin_create((size_t)(count * shape.d_v * dtype_bytes(shape.dtype)), skew);
    struct twin o = twin_create((size_t)(count * shape.d_v) * sizeof(float), skew);
    struct twin d = twin_create((size_t)count * sizeof(float), 0);
    twin_fill_dtype(&d_out, shape.dtype, 1);
    twin_fill_floats(&o, 1);
    twin_push(&d_out);
    twin_push(&o);
    backend_cuda.row_dot(harness_cuda, &shape, d_out.device, floats(o.device), floats(d.device));
    float *expected = malloc(d.bytes + 1);
    backend_cpu.row_dot(harness_cpu, &shape, d_out.host, floats(o.host), expected);
    float *got = twin_fetch(&d);
    expect_close(got, expected, count, 1e-5, "row dot");
    free(got);
    free(expected);
    twin_destroy(&d_out);
    twin_destroy(&o);
    twin_destroy(&d);
}

static void row_dot(void)
{
    static const int dims[] = {1, 2, 3, 8, 16, 33, 64, 80, 96, 128, 160, 192, 248, 255, 256};
    static const int64_t rows[] = {0, 1, 3, 31, 33, 64, 127, 200};
    for (int n = 0; n < 15 * 8; n++)
        row_dot_compare((struct attention_shape){.dtype = dtypes[harness_below(3)],
                                                 .heads = (int32_t)harness_between(1, 9),
                                                 .d_v = dims[n % 15],
                                                 .q_rows = rows[n / 15]},
                        harness_below(4) ? 0 : 8);
    if (!harness_small())
        row_dot_compare(
            (struct attention_shape){.dtype = DTYPE_BF16, .heads = 32, .d_v = 128, .q_rows = 5003},
            0);
}

// ---- packed rows --------------------------------------------------------------------------------

#define RUNS 5

// Draws RUNS runs of up to 40 rows in ascending order, with small gaps between them. Returns the
// number of rows of the tensor.
static int64_t runs_draw(struct row_run runs[RUNS], struct packed_rows *rows)
{
    int64_t row = harness_below(5), step = harness_between(1, 3);
    *rows = (struct packed_rows){.runs = runs, .run_count = RUNS, .row_step = step};
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (struct row_run){row, rows->total, harness_between(1, 40)};
        rows->total += runs[i].count;
        row += runs[i].count * step + harness_below(4);
    }
    return row;
}

static void merge_compare(enum packed_layout layout)
{
    struct row_run runs[RUNS];
    struct packed_rows rows;
    struct attention_shape shape = {.heads = (int32_t)harness_between(1, 9),
                                    .d_v = (int32_t)harness_between(1, 30) * 8 + (int)layout,
                                    .q_rows = runs_draw(runs, &rows)};
    enum case_dtype dtype = dtypes[harness_below(3)];
    int64_t values = shape.q_rows * shape.heads, packed = rows.total * shape.heads;
    struct twin o = twin_create((size_t)(values * shape.d_v) * sizeof(float), 0);
    struct twin lse = twin_create((size_t)values * sizeof(float), 0);
    struct twin part = twin_create((size_t)(packed * shape.d_v * dtype_bytes(dtype)), 0);
    struct twin part_lse = twin_create((size_t)packed * sizeof(float), 0);
    twin_fill_floats(&o, 1);
    twin_fill_floats(&lse, 4);
    twin_fill_dtype(&part, dtype, 1);
    twin_fill_floats(&part_lse, 4);
    for (int64_t i = 0; i < values; i += 3)
        floats(lse.host)[i] = -INFINITY; // of a query without visible keys
    twin_push(&o);
    twin_push(&lse);
    twin_push(&part);
    twin_push(&part_lse);
    backend_cuda.merge_rows(harness_cuda, &shape, &rows, dtype, part.device,
                            floats(part_lse.device), layout, floats(o.device), floats(lse.device));
    backend_cpu.merge_rows(harness_cpu, &shape, &rows, dtype, part.host, floats(part_lse.host),
                           layout, floats(o.host), floats(lse.host));
    float *got = twin_fetch(&o), *got_lse = twin_fetch(&lse);
    expect_close(got, floats(o.host), values * shape.d_v, 1e-5, "merged O");
    for (int64_t i = 0; i < values; i++)
        EXPECT(got_lse[i] == floats(lse.host)[i] || fabsf(got_lse[i] - floats(lse.host)[i]) < 1e-5F,
               "merged LSE %g, expected %g", got_lse[i], floats(lse.host)[i]);
    free(got);
    free(got_lse);
    twin_destroy(&o);
    twin_destroy(&lse);
    twin_destroy(&part);
    twin_destroy(&part_lse);
}

static void merge_rows(void)
{
    for (int n = 0; n < 60; n++)
        merge_compare(n % 2 ? PACKED_BY_ROW : PACKED_BY_RUN);
}

static void *copy_of(const void *data, size_t bytes)
{
    return memcpy(malloc(bytes + 1), data, bytes);
}

static void rows_compare(int64_t width)
{
    struct row_run runs[RUNS];
    struct packed_rows rows;
    enum case_dtype dtype = dtypes[harness_below(3)];
    int64_t count = runs_draw(runs, &rows) * width;
    struct twin x = twin_create((size_t)count * sizeof(float), 0);
    struct twin packed = twin_create((size_t)(rows.total * width * dtype_bytes(dtype)), 0);
    twin_fill_floats(&x, 3);
    twin_push(&x);
    backend_cuda.pack_rows(harness_cuda, &rows, width, dtype, floats(x.device), packed.device);
    backend_cpu.pack_rows(harness_cpu, &rows, width, dtype, floats(x.host), packed.host);
    compare_bytes(twin_fetch(&packed), copy_of(packed.host, packed.bytes), packed.bytes,
                  "packed rows");
    backend_cuda.add_rows(harness_cuda, &rows, width, dtype, packed.device, floats(x.device));
    backend_cpu.add_rows(harness_cpu, &rows, width, dtype, packed.host, floats(x.host));
    compare_bytes(twin_fetch(&x), copy_of(x.host, x.bytes), x.bytes, "added rows");
    twin_destroy(&x);
    twin_destroy(&packed);
}

static void heads_compare(enum packed_layout layout)
{
    struct row_run runs[RUNS];
    struct packed_rows rows;
    struct attention_shape shape = {.heads = (int32_t)harness_between(1, 9),
                                    .q_rows = runs_draw(runs, &rows)};
    struct twin x = twin_create((size_t)(shape.heads * shape.q_rows) * sizeof(float), 0);
    struct twin packed = twin_create((size_t)(shape.heads * rows.total) * sizeof(float), 0);
    twin_fill_floats(&x, 3);
    twin_push(&x);
    backend_cuda.pack_heads(harness_cuda, &shape, &rows, layout, floats(x.device),
                            floats(packed.device));
    backend_cpu.pack_heads(harness_cpu, &shape, &rows, layout, floats(x.host), floats(packed.host));
    compare_bytes(twin_fetch(&packed), copy_of(packed.host, packed.bytes), packed.bytes,
                  "packed heads");
    twin_destroy(&x);
    twin_destroy(&packed);
}

static void pack_rows(void)
{
    for (int n = 0; n < 60; n++) {
        rows_compare(n < 20 ? n + 1 : harness_between(1, 300) * 8);
        heads_compare(n % 2 ? PACKED_BY_ROW : PACKED_BY_RUN);
    }
}

static void fill_heads(void)
{
    for (int n = 0; n < 40; n++) {
        struct attention_shape shape = {.heads = (int32_t)harness_between(1, 40),
                                        .q_rows = n < 9 ? n : harness_below(5000)};
        int64_t count = shape.heads * shape.q_rows;
        struct twin source = twin_create((size_t)shape.heads * sizeof(float), 4);
        struct twin x = twin_create((size_t)count * sizeof(float), (size_t)(n % 3) * 4);
        twin_fill_floats(&source, 5);
        twin_push(&source);
        backend_cuda.fill_heads(harness_cuda, &shape, floats(source.device), floats(x.device));
        float *expected = malloc(x.bytes + 1);
        backend_cpu.fill_heads(harness_cpu, &shape, floats(source.host), expected);
        compare_bytes(twin_fetch(&x), expected, x.bytes, "fill heads");
        twin_destroy(&source);
        twin_destroy(&x);
    }
}

// Draws slices with a row step and other rows between them; some slices are empty. Returns the
// number of rows of the tensor.
static int64_t slices_draw(struct slice *slices, int count, int64_t step, int64_t length)
{
    int64_t row = harness_below(5);
    for (int i = 0; i < count; i++) {
        slices[i] =
            (struct slice){.q_row = row, .q_len = harness_below(4) ? harness_below(length) : 0};
        row += slices[i].q_len * step + harness_below(3);
    }
    return row + 1;
}

static void sink_grad_compare(int64_t length)
{
    struct slice slices[9];
    int count = (int)harness_between(0, 9);
    struct attention_shape shape = {.heads = (int32_t)harness_between(1, 12),
                                    .row_step = harness_between(1, 3)};
    shape.q_rows = slices_draw(slices, count, shape.row_step, length);
    size_t head_bytes = (size_t)shape.heads * sizeof(float);
    size_t row_bytes = head_bytes * (size_t)shape.q_rows;
    struct twin sink = twin_create(head_bytes, 0), dsink = twin_create(head_bytes, 0);
    struct twin lse = twin_create(row_bytes, 0), d = twin_create(row_bytes, 0);
    const struct twin *all[] = {&sink, &dsink, &lse, &d};
    for (int i = 0; i < 4; i++)
        twin_fill_floats(all[i], 2);
    if (harness_below(3) == 0)
        (floats(sink.host))[0] = -INFINITY;
    for (int i = 0; i < 4; i++)
        twin_push(all[i]);
    float *expected = malloc(head_bytes), *got[2];
    struct row_run runs[9];
    struct packed_rows rows;
    packed_rows_of_slices(&rows, runs, slices, count, shape.row_step);
    memcpy(expected, dsink.host, head_bytes);
    for (int run = 0; run < 2; run++) {
        twin_push(&dsink);
        backend_cuda.sink_grad(harness_cuda, &shape, &rows, NULL, floats(sink.device),
                               floats(lse.device), floats(d.device), floats(dsink.device));
        got[run] = twin_fetch(&dsink);
    }
    backend_cpu.sink_grad(harness_cpu, &shape, &rows, NULL, floats(sink.host), floats(lse.host),
                          floats(d.host), expected);
    expect_close(got[0], expected, shape.heads, 1e-6, "sink gradient");
    compare_bytes(got[0], got[1], head_bytes, "sink gradient, once more");
    free(expected);
    twin_destroy(&sink);
    twin_destroy(&dsink);
    twin_destroy(&lse);
    twin_destroy(&d);
}

static void sink_grad(void)
{
    for (int n = 0; n < 40; n++)
        sink_grad_compare(n < 20 ? 1 + n : harness_small() ? 300 : 30000);
}

// ---- large tensors ----

// The digest of `bytes` bytes that repeat one word.
static uint64_t constant_sum(uint64_t word, int64_t bytes)
{
    uint64_t sum = 0, rest = 0;
    for (int64_t i = 0; i < bytes / 8; i++)
        sum += digest_word(word, (uint64_t)i);
    memcpy(&rest, &word, (size_t)(bytes % 8));
    return bytes % 8 ? sum + digest_word(rest, (uint64_t)bytes / 8) : sum;
}

// Fill, add and convert with indices beyond 2^31, compared by digests.
static void of_more_than_2_31_elements(void)
{
    const int64_t count = (INT64_C(1) << 31) + 7;
    size_t available, total;
    float *x;
    uint16_t *y;
    CUDA(cudaMemGetInfo(&available, &total));
    if (harness_small() || available < (size_t)count * 7) {
        harness_note("left out: %zu MiB of device memory", available >> 20);
        return;
    }
    CUDA(cudaMalloc((void **)&x, (size_t)count * sizeof(*x)));
    CUDA(cudaMalloc((void **)&y, (size_t)count * sizeof(*y)));
    backend_cuda.fill(harness_cuda, x, 1.25f, count);
    backend_cuda.add(harness_cuda, x, x, count);
    backend_cuda.convert(harness_cuda, DTYPE_BF16, x, y, count);
    const uint64_t *x_sum =
        digest_cuda_sum(attention_cuda_queue(harness_cuda), x, (size_t)count * sizeof(*x));
    const uint64_t *y_sum =
        digest_cuda_sum(attention_cuda_queue(harness_cuda), y, (size_t)count * sizeof(*y));
    harness_finish();
    EXPECT(x_sum && *x_sum == constant_sum(UINT64_C(0x4020000040200000), count * 4), "fill, add");
    EXPECT(y_sum && *y_sum == constant_sum(UINT64_C(0x4020402040204020), count * 2), "convert");
    CUDA(cudaFree(x));
    CUDA(cudaFree(y));
}

static const struct harness_test tests[] = {
    {"report_what_went_wrong", report_what_went_wrong},
    {"illegal_addresses_are_told", illegal_addresses_are_told},
    {"memory_is_recycled", memory_is_recycled},
    {"add", add},
    {"max", max},
    {"fill", fill},
    {"fill_several", fill_several},
    {"convert_sizes", convert_sizes},
    {"convert_values", convert_values},
    {"row_dot", row_dot},
    {"fill_heads", fill_heads},
    {"merge rows", merge_rows},
    {"pack rows", pack_rows},
    {"sink_grad", sink_grad},
    {"of_more_than_2_31_elements", of_more_than_2_31_elements},
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], ILLEGAL) == 0)
        return read_illegal_address();
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
