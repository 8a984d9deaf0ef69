// SPDX-License-Identifier: Apache-2.0
// Times calls of the CUDA backend. Each line of standard input is one measurement:
//     VERB DTYPE BATCH HEADS KV_HEADS SEQLEN D_QK D_V MASK BURSTS
// The answer is one line: the median and the minimum milliseconds of a call, and the TFLOP/s of
// visible pairs at the median. A forward burst has many calls, so that only the first call exposes
// the launch latency of the host. Every other burst is one call. Warm-up calls come first. VERB is
//     forward           a whole forward: O and LSE start uninitialised, O is rounded to the dtype
//     forward_train     the same, and also writes O in fp32, which backward needs
//     forward_merge     one step: merges into O in fp32 and LSE; LSE is filled before each call
//     forward_capped    forward with a softcap
//     forward_biased    with a bias per head, batch 1
//     forward_max       with max_logit
//     forward_sink      with a sink per head, of logit 0
//     backward          one step: D and the kernel, which adds to gradients in fp32
//     ordered           backward, deterministic
//     whole             a whole backward: gradients start at 0 and are rounded to the dtype
//     whole_ordered     the same, deterministic
//     capped            backward with a softcap
//     biased            backward with a bias per head and its gradient, batch 1
//     biased_more       the same, but dbias must be added to that of the previous call
//     biased_ordered    biased, deterministic
// There are as many keys as queries. MASK is
//     full
//     causal
//     windowN           causal, the last N keys
//     packedN           causal, documents of random lengths up to 1/N of the sequence
//     dealtN            causal, rows stored rank by rank for N ranks with two zigzag chunks each
// bench/cuda/beside_torch.py runs this program between its own measurements.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/regions_cuda.h"
#include "kernels/dtype.h"
#include "plan/slice.h"

#define BURSTS_MAX  1000
#define BURST_MS    20 // approximate length of a burst of forward calls
#define SOFTCAP     30
#define WARM_MS     100 // minimum duration of all warm-up calls
#define BATCH_MOST  64
#define RANKS_MOST  8
// The mask dealtN: each of 2 N chunks attends to itself and to all chunks before it.
#define SLICES_MOST (BATCH_MOST * RANKS_MOST * (2 * RANKS_MOST + 1))

struct request {
    char verb[16], dtype[8], mask[16];
    int batch, heads, kv_heads, seqlen, d_qk, d_v, bursts;
};

struct tensors {
    void *q, *k, *v, *d_out;
    void *out;                         // dtype: O in forward, dQ in a whole backward
    void *dk_out, *dv_out;             // dtype: only in a whole backward
    float *o, *lse, *d, *dq, *dk, *dv; // D and gradients only in backward
    void *bias;
    float *dbias;     // only biased backward
    float *max_logit; // only forward_max
};

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static void check_status(enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

// ---- inputs -------------------------------------------------------------------------------------

// Number of normal random numbers that are drawn on the host. A tensor repeats them from an offset
// of its own. The number is prime, so that rows do not repeat.
#define NUMBERS 1048573

static void *normal_numbers(enum case_dtype dtype)
{
    void *numbers = malloc((size_t)NUMBERS * sizeof(float));
    if (!numbers)
        abort();
    srand48(1);
    for (int i = 0; i < NUMBERS; i++) {
        double radius = sqrt(-2 * log(1 - drand48()));
        dtype_store(dtype, numbers, i, (float)(radius * cos(2 * M_PI * drand48())));
    }
    return numbers;
}

static void *tensor_create(enum case_dtype dtype, const void *numbers, size_t first, size_t count)
{
    size_t element = (size_t)dtype_bytes(dtype), bytes = count * element;
    char *tensor;
    CHECK(cudaMalloc((void **)&tensor, bytes));
    size_t begin = first * element, piece;
    for (size_t at = 0; at < bytes; at += piece, begin = 0) {
        piece = NUMBERS * element - begin;
        piece = bytes - at < piece ? bytes - at : piece;
        CHECK(
            cudaMemcpy(tensor + at, (const char *)numbers + begin, piece, cudaMemcpyHostToDevice));
    }
    return tensor;
}

static bool is_forward(const struct request *r)
{
    return strncmp(r->verb, "forward", 7) == 0;
}

static bool is_biased(const struct request *r)
{
    return strstr(r->verb, "biased") != NULL;
}

static size_t bias_count(const struct request *r)
{
    return (size_t)r->heads * (size_t)r->seqlen * (size_t)r->seqlen;
}

static float *gradient_create(size_t count)
{
    float *gradient;
    CHECK(cudaMalloc((void **)&gradient, count * sizeof(float)));
    CHECK(cudaMemset(gradient, 0, count * sizeof(float)));
    return gradient;
}

static bool is_whole(const struct request *r)
{
    return strncmp(r->verb, "whole", 5) == 0;
}

static struct tensors tensors_create(const struct request *r, enum case_dtype dtype)
{
    size_t rows = (size_t)r->batch * (size_t)r->seqlen, heads = (size_t)r->heads;
    size_t kv = rows * (size_t)r->kv_heads;
    void *numbers = normal_numbers(dtype);
    struct tensors t = {0};
    t.q = tensor_create(dtype, numbers, 0, rows * heads * (size_t)r->d_qk);
    t.k = tensor_create(dtype, numbers, NUMBERS / 4, kv * (size_t)r->d_qk);
    t.v = tensor_create(dtype, numbers, NUMBERS / 2, kv * (size_t)r->d_v);
    CHECK(cudaMalloc((void **)&t.o, rows * heads * (size_t)r->d_v * sizeof(float)));
    CHECK(cudaMalloc((void **)&t.lse, rows * heads * sizeof(float)));
    size_t widest = (size_t)(r->d_qk > r->d_v ? r->d_qk : r->d_v);
    size_t element = (size_t)dtype_bytes(dtype);
    if (is_forward(r) || is_whole(r))
        CHECK(cudaMalloc(&t.out, rows * heads * widest * element));
    if (is_whole(r)) {
        CHECK(cudaMalloc(&t.dk_out, kv * (size_t)r->d_qk * element));
        CHECK(cudaMalloc(&t.dv_out, kv * (size_t)r->d_v * element));
    }
    if (!is_forward(r)) {
        t.d_out = tensor_create(dtype, numbers, NUMBERS / 4 * 3, rows * heads * (size_t)r->d_v);
        t.d = gradient_create(rows * heads);
        t.dq = gradient_create(rows * heads * (size_t)r->d_qk);
        t.dk = gradient_create(kv * (size_t)r->d_qk);
        t.dv = gradient_create(kv * (size_t)r->d_v);
    }
    if (is_biased(r)) {
        t.bias = tensor_create(dtype, numbers, NUMBERS / 8, bias_count(r));
        if (!is_forward(r))
            t.dbias = gradient_create(bias_count(r));
    }
    if (strstr(r->verb, "max"))
        t.max_logit = gradient_create(heads);
    free(numbers);
    return t;
}

static void tensors_destroy(struct tensors *t)
{
    CHECK(cudaFree(t->q));
    CHECK(cudaFree(t->k));
    CHECK(cudaFree(t->v));
    CHECK(cudaFree(t->out));
    CHECK(cudaFree(t->dk_out));
    CHECK(cudaFree(t->dv_out));
    CHECK(cudaFree(t->o));
    CHECK(cudaFree(t->lse));
    CHECK(cudaFree(t->d_out));
    CHECK(cudaFree(t->d));
    CHECK(cudaFree(t->dq));
    CHECK(cudaFree(t->dk));
    CHECK(cudaFree(t->dv));
    CHECK(cudaFree(t->bias));
    CHECK(cudaFree(t->dbias));
    CHECK(cudaFree(t->max_logit));
}

// ---- measurement --------------------------------------------------------------------------------

static enum case_dtype request_dtype(const struct request *r)
{
    if (strcmp(r->dtype, "bf16") == 0)
        return DTYPE_BF16;
    return strcmp(r->dtype, "fp16") == 0 ? DTYPE_FP16 : DTYPE_FP32;
}

static struct attention_shape request_shape(const struct request *r)
{
    return (struct attention_shape){.dtype = request_dtype(r),
                                    .heads = r->heads,
                                    .kv_heads = r->kv_heads,
                                    .d_qk = r->d_qk,
                                    .d_v = r->d_v,
                                    .group = r->heads / r->kv_heads,
                                    .q_rows = (int64_t)r->batch * r->seqlen,
                                    .row_step = 1,
                                    .bias_row_step = 1,
                                    .bias_row_stride = r->seqlen,
                                    .bias_head_stride = (int64_t)r->seqlen * r->seqlen,
                                    .dbias_once = strcmp(r->verb, "biased_more") != 0,
                                    .softcap = strstr(r->verb, "capped") ? SOFTCAP : 0,
                                    .scale = 1 / sqrt(r->d_qk)};
}

// The first row, relative to the sequence, of chunk `chunk` of 2 N when rows are stored rank by
// rank. Each rank has a chunk and its mirror image (zigzag).
static int64_t chunk_row(int ranks, int chunk, int64_t chunk_rows)
{
    int mirrored = 2 * ranks - 1 - chunk;
    return (chunk < mirrored ? 2 * chunk : 2 * mirrored + 1) * chunk_rows;
}

static int sequence_slices(const struct request *r, int64_t row, int ranks, struct slice *slices)
{
    int chunks = ranks > 0 ? 2 * ranks : 1, count = 0;
    int64_t rows = r->seqlen / chunks;
    for (int q = 0; q < chunks; q++)
        for (int kv = 0; kv <= q; kv++)
            slices[count++] =
                (struct slice){.q_row = row + (ranks > 0 ? chunk_row(ranks, q, rows) : 0),
                               .q_len = rows,
                               .kv_row = row + (ranks > 0 ? chunk_row(ranks, kv, rows) : 0),
                               .kv_len = rows,
                               .left = SLICE_UNBOUNDED,
                               .right = kv == q && r->mask[0] != 'f' ? 0 : SLICE_UNBOUNDED};
    return count;
}

// Splits a sequence into documents of random length: at most seqlen / parts tokens, and at least a
// quarter of that except for the last.
static int document_slices(const struct request *r, int64_t row, int parts, struct slice *slices)
{
    int64_t most = r->seqlen / parts, begin = 0, length;
    int count = 0;
    srand48(row + 1);
    for (; begin < r->seqlen; begin += length) {
        int64_t least = most / 4;
        length = least + (int64_t)(drand48() * (double)(most - least + 1));
        if (length > r->seqlen - begin)
            length = r->seqlen - begin;
        slices[count++] = (struct slice){.q_row = row + begin,
                                         .q_len = length,
                                         .kv_row = row + begin,
                                         .kv_len = length,
                                         .left = SLICE_UNBOUNDED};
    }
    return count;
}

static int request_slices(const struct request *r, struct slice slices[SLICES_MOST])
{
    int ranks = 0, window = 0, parts = 0, count = 0;
    bool dealt = sscanf(r->mask, "dealt%d", &ranks) == 1;
    bool packed = sscanf(r->mask, "packed%d", &parts) == 1;
    if ((dealt && (ranks < 1 || ranks > RANKS_MOST)) ||
        (packed && (parts < 1 || parts > RANKS_MOST || r->seqlen < 4 * parts))) {
        fprintf(stderr, "mask %s: accepted are 1 to %d, and for packedN at least 4 N tokens\n",
                r->mask, RANKS_MOST);
        exit(1);
    }
    sscanf(r->mask, "window%d", &window);
    for (int i = 0; i < r->batch; i++) {
        int64_t row = (int64_t)i * r->seqlen;
        int first = count;
        count += parts > 0 ? document_slices(r, row, parts, slices + count)
                           : sequence_slices(r, row, ranks, slices + count);
        if (window > 0)
            slices[first].left = window - 1;
    }
    return count;
}

// TFLOP/s of a call that takes `time` milliseconds.
static double request_rate(const struct request *r, const struct slice *slices, int count,
                           double time)
{
    double pairs = 0;
    for (int i = 0; i < count; i++)
        pairs += (double)slice_pairs(&slices[i]);
    return pairs * r->heads * (r->d_qk + r->d_v) * (is_forward(r) ? 2 : 5) / time / 1e9;
}

static int compare_times(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// The arguments of one call, and the initial values and memory that it needs.
struct call {
    struct attention_forward forward;
    struct attention_backward backward;
    bool is_forward;
    float lse;                            // fills LSE before a forward without lse_begins
    void *dq_out, *dk_out, *dv_out;       // rounded gradients of a whole backward; else NULL
    int64_t dq_count, dk_count, dv_count; // elements
    // The prepared operation and its memory. The backend frees `zeros` with its tables.
    struct attention_work *work;
    struct op_needs needs;
    void *zeros, *scratch;
};

static void call_equip(struct attention_backend *backend, struct call *call)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    const struct attention_forward *f = &call->forward;
    const struct attention_backward *b = &call->backward;
    const struct attention_op op = {.shape = f->shape,
                                    .backward = !call->is_forward,
                                    .bias = f->bias,
                                    .dbias = b->dbias,
                                    .max_logit = f->max_logit,
                                    .aligned = true,
                                    .slices = f->slices,
                                    .slice_count = f->slice_count};
    struct error error;
    void *host, *device;
    call->needs = (struct op_needs){0};
    check_status(kernels->prepare(backend, &op, &call->work, &call->needs, &error), &error);
    if (!call->needs.folds && call->is_forward) {
        if (call->forward.fold.out) {
            fprintf(stderr,
                    "no kernel begins this forward from nothing: use the verb forward_merge\n");
            exit(1);
        }
        call->forward.fold = (struct attention_fold){0};
    }
    if (call->needs.folds && call->dq_out) {
        call->backward.queries_begin = call->needs.begins_queries;
        call->backward.keys_begin = true;
        call->backward.dk_out = call->dk_out;
        call->backward.dv_out = call->dv_out;
    }
    size_t tables = (call->needs.table_bytes + 255) / 256 * 256;
    check_status(backend_cuda.tables_reserve(backend, tables + call->needs.zero_bytes, &host,
                                             &device, &error),
                 &error);
    call->zeros = (char *)device + tables;
    CHECK(cudaMalloc(&call->scratch, call->needs.scratch_bytes + 1));
    if (tables > 0)
        kernels->place(backend, call->work, host, device, call->zeros);
    backend_cuda.tables_push(backend, tables);
}

static void call_discard(struct attention_backend *backend, struct call *call)
{
    backend_cuda.attention->discard(backend, call->work);
    CHECK(cudaFree(call->scratch));
}

static void call_prepare(struct attention_backend *backend, const struct call *call)
{
    const struct attention_forward *args = &call->forward;
    if (call->is_forward && !args->fold.lse_begins)
        backend_cuda.fill(backend, args->lse, call->lse, args->shape.heads * args->shape.q_rows);
    if (call->needs.zero_bytes > 0)
        backend_cuda.fill(backend, call->zeros, 0, (int64_t)(call->needs.zero_bytes / 4));
}

static void gradients_clear(struct attention_backend *backend, const struct call *call)
{
    const struct attention_backward *args = &call->backward;
    const struct region_fill fills[] = {{args->dq, call->dq_count, 0},
                                        {args->dk, call->dk_count, 0},
                                        {args->dv, call->dv_count, 0}};
    if (call->dq_out && !args->queries_begin)
        regions_cuda_fill(backend, fills, args->keys_begin ? 1 : 3);
}

static void gradients_round(struct attention_backend *backend, const struct call *call)
{
    const struct attention_backward *args = &call->backward;
    enum case_dtype dtype = args->shape.dtype;
    if (call->dq_out)
        backend_cuda.convert(backend, dtype, args->dq, call->dq_out, call->dq_count);
    if (!call->dq_out || args->dk_out)
        return;
    backend_cuda.convert(backend, dtype, args->dk, call->dk_out, call->dk_count);
    backend_cuda.convert(backend, dtype, args->dv, call->dv_out, call->dv_count);
}

// Launches one call. Backward includes the computation of D, as in PyTorch.
static void call_run(struct attention_backend *backend, const struct call *call)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    const struct attention_backward *args = &call->backward;
    struct error error;
    if (call->is_forward) {
        check_status(
            kernels->launch_forward(backend, call->work, &call->forward, call->scratch, &error),
            &error);
        return;
    }
    backend_cuda.row_dot(backend, &args->shape, args->d_out, call->forward.o, (float *)args->d);
    gradients_clear(backend, call);
    check_status(kernels->launch_backward(backend, call->work, args, call->scratch, &error),
                 &error);
    gradients_round(backend, call);
}

struct timer {
    cudaEvent_t begin, end;
};

// Runs a burst of `calls` calls. Returns the milliseconds per call.
static float burst_time(struct attention_backend *backend, const struct call *call, int calls,
                        const struct timer *timer)
{
    cudaStream_t stream = attention_cuda_stream(backend);
    struct error error;
    float time;
    CHECK(cudaEventRecord(timer->begin, stream));
    for (int i = 0; i < calls; i++) {
        call_prepare(backend, call);
        call_run(backend, call);
    }
    CHECK(cudaEventRecord(timer->end, stream));
    check_status(attention_cuda_finish(backend, &error), &error);
    CHECK(cudaEventElapsedTime(&time, timer->begin, timer->end));
    return time / (float)calls;
}

// Warms the device up. Returns the number of calls in a burst.
static int burst_calls(struct attention_backend *backend, const struct call *call,
                       const struct timer *timer)
{
    float time = burst_time(backend, call, 1, timer), all = time;
    for (int i = 0; i < 2 || all < WARM_MS; i++) {
        time = burst_time(backend, call, 1, timer);
        all += time;
    }
    return call->is_forward && time < BURST_MS ? (int)(BURST_MS / time) : 1;
}

// Fills times[bursts] with the milliseconds per call of each burst, in ascending order.
static void time_calls(struct attention_backend *backend, const struct call *call, int bursts,
                       float *times)
{
    struct timer timer;
    CHECK(cudaEventCreate(&timer.begin));
    CHECK(cudaEventCreate(&timer.end));
    int calls = burst_calls(backend, call, &timer);
    for (int i = 0; i < bursts; i++)
        times[i] = burst_time(backend, call, calls, &timer);
    CHECK(cudaEventDestroy(timer.begin));
    CHECK(cudaEventDestroy(timer.end));
    qsort(times, (size_t)bursts, sizeof(*times), compare_times);
}

// The fill of O and LSE and the conversion of O that a forward folds into its launch.
static struct attention_fold request_fold(const struct request *r, const struct tensors *t)
{
    if (!is_forward(r) || strcmp(r->verb, "forward_merge") == 0)
        return (struct attention_fold){0};
    return (struct attention_fold){.begins = true,
                                   .lse_begins = strcmp(r->verb, "forward_sink") != 0,
                                   .lse_begin = -INFINITY,
                                   .out = t->out,
                                   .out_only = strcmp(r->verb, "forward_train") != 0};
}

static struct call request_call(const struct request *r, const struct tensors *t,
                                const struct slice *slices, int slice_count)
{
    struct call call = {.is_forward = is_forward(r),
                        .lse = strcmp(r->verb, "forward_sink") == 0 ? 0 : -INFINITY};
    struct attention_shape shape = request_shape(r);
    shape.deterministic = strstr(r->verb, "ordered") != NULL;
    call.forward = (struct attention_forward){.shape = shape,
                                              .q = t->q,
                                              .k = t->k,
                                              .v = t->v,
                                              .bias = t->bias,
                                              .max_logit = t->max_logit,
                                              .o = t->o,
                                              .lse = t->lse,
                                              .fold = request_fold(r, t),
                                              .slices = slices,
                                              .slice_count = slice_count};
    call.backward = (struct attention_backward){.shape = shape,
                                                .q = t->q,
                                                .k = t->k,
                                                .v = t->v,
                                                .d_out = t->d_out,
                                                .bias = t->bias,
                                                .dbias = t->dbias,
                                                .lse = t->lse,
                                                .d = t->d,
                                                .dq = t->dq,
                                                .dk = t->dk,
                                                .dv = t->dv,
                                                .slices = slices,
                                                .slice_count = slice_count};
    int64_t rows = (int64_t)r->batch * r->seqlen;
    call.dq_out = is_whole(r) ? t->out : NULL;
    call.dk_out = t->dk_out;
    call.dv_out = t->dv_out;
    call.dq_count = rows * r->heads * r->d_qk;
    call.dk_count = rows * r->kv_heads * r->d_qk;
    call.dv_count = rows * r->kv_heads * r->d_v;
    return call;
}

// Runs a forward, whose O and LSE are inputs of backward.
static void prepare_backward(struct attention_backend *backend, const struct call *call)
{
    struct call forward = *call;
    struct error error;
    forward.is_forward = true;
    call_prepare(backend, &forward);
    check_status(backend_cuda.attention->forward(backend, &forward.forward, &error), &error);
    check_status(attention_cuda_finish(backend, &error), &error);
}

static void answer(struct attention_backend *backend, const struct request *r)
{
    static float times[BURSTS_MAX];
    static struct slice slices[SLICES_MOST];
    struct tensors t = tensors_create(r, request_dtype(r));
    int slice_count = request_slices(r, slices);
    struct call call = request_call(r, &t, slices, slice_count);
    if (!call.is_forward)
        prepare_backward(backend, &call);
    call_equip(backend, &call);
    time_calls(backend, &call, r->bursts, times);
    call_discard(backend, &call);
    double median = times[r->bursts / 2];
    printf("%.4f %.4f %.1f\n", median, times[0], request_rate(r, slices, slice_count, median));
    fflush(stdout);
    tensors_destroy(&t);
}

static bool request_read(struct request *r)
{
    return scanf("%15s %7s %d %d %d %d %d %d %15s %d", r->verb, r->dtype, &r->batch, &r->heads,
                 &r->kv_heads, &r->seqlen, &r->d_qk, &r->d_v, r->mask, &r->bursts) == 10 &&
           r->batch >= 1 && r->batch <= BATCH_MOST && r->heads >= 1 && r->kv_heads >= 1 &&
           (!is_biased(r) || r->batch == 1) && r->heads % r->kv_heads == 0 && r->seqlen >= 1 &&
           r->bursts >= 1 && r->bursts <= BURSTS_MAX;
}

int main(void)
{
    struct attention_backend *backend = NULL;
    struct error error;
    struct request request;
    check_status(backend_cuda.create(&backend, &error), &error);
    while (request_read(&request))
        answer(backend, &request);
    backend_cuda.destroy(backend);
    return 0;
}
