// SPDX-License-Identifier: Apache-2.0
// The CUDA part of libcpattn-check: draws inputs into device memory and judges results there. The
// judge reads tensors in the dense layout of a rank (pack_of()). Arrays with this layout are judged
// in place; others are first copied to it on the device.
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "check/cuda/pack.h"
#include "check/device.h"
#include "common/arena.h"
#include "common/cuda/device_arena.h"
#include "judge/cuda/collective_cuda.h"
#include "judge/cuda/inputs_cuda.h"
#include "judge/cuda/linear_cuda.h"
#include "judge/cuda/verify.h"
#include "judge/source.h"
#include "plan/bias.h"

#define INPUTS 4 // q, k, v and dO, the first values of enum cpattn_tensor and whole_tensor

struct device_judge {
    int device;
    cudaStream_t stream; // the caller's
    struct cuda_queue queue;
    struct device_arena memory;
    struct arena host;
    cudaEvent_t begun, events[2];
    void *given[INPUTS];  // device copies of the given inputs, whole tensors (judge/source.h)
    uint64_t given_count; // the check's given_count when they were copied
};

// ---- the device ---------------------------------------------------------------------------------

// Makes the judge's device current. Returns the previous one.
static int device_enter(const struct device_judge *j)
{
    int before = j->device;
    cudaGetDevice(&before);
    cudaSetDevice(j->device);
    return before;
}

static void device_leave(int before)
{
    cudaSetDevice(before);
}

static void given_free(struct device_judge *j)
{
    for (int t = 0; t < INPUTS; t++) {
        cudaFree(j->given[t]);
        j->given[t] = NULL;
    }
}

static void judge_fini(struct device_judge *j)
{
    queue_fini(&j->queue);
    given_free(j);
    device_arena_fini(&j->memory);
    arena_fini(&j->host);
    if (j->begun)
        cudaEventDestroy(j->begun);
    for (int i = 0; i < 2; i++)
        if (j->events[i])
            cudaEventDestroy(j->events[i]);
    cudaGetLastError();
    free(j);
}

static void judge_close(struct device_judge *j)
{
    if (!j)
        return;
    int before = device_enter(j);
    judge_fini(j);
    device_leave(before);
}

static cudaError_t judge_init(struct device_judge *j)
{
    device_arena_init(&j->memory, 0);
    arena_init(&j->host);
    cudaError_t result = queue_init(&j->queue);
    if (result == cudaSuccess)
        result = cudaEventCreateWithFlags(&j->begun, cudaEventDisableTiming);
    for (int i = 0; i < 2 && result == cudaSuccess; i++)
        result = cudaEventCreate(&j->events[i]);
    return result;
}

static enum status judge_open(int device, void *stream, struct device_judge **judge,
                              struct error *error)
{
    int count = 0, before = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || device >= count)
        return error_set(error, STATUS_UNAVAILABLE, "there is no CUDA device %d; there are %d%s%s",
                         device, count, result == cudaSuccess ? "" : ": ",
                         result == cudaSuccess ? "" : cudaGetErrorString(result));
    struct device_judge *j = calloc(1, sizeof(*j));
    if (!j)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the judge of a device");
    j->device = device;
    j->stream = stream;
    before = device_enter(j);
    result = judge_init(j);
    if (result == cudaSuccess)
        *judge = j;
    else
        judge_fini(j);
    device_leave(before);
    if (result == cudaSuccess)
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE, "CUDA device %d cannot be used: %s", device,
                     cudaGetErrorString(result));
}

// Makes later work of the queue wait for the work that is on the caller's stream.
static void judge_follow(struct device_judge *j)
{
    queue_note(&j->queue, cudaEventRecord(j->begun, j->stream), "the caller's stream");
    queue_note(&j->queue, cudaStreamWaitEvent(j->queue.stream, j->begun, 0), "the caller's stream");
}

static bool judge_read(struct device_judge *j, void *host, const void *device, size_t bytes)
{
    int before = device_enter(j);
    cudaError_t result = cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
    device_leave(before);
    return result == cudaSuccess;
}

// ---- the order of a rank ------------------------------------------------------------------------

// The caller's row that is row `row` of the dense layout. With placed tokens the dense layout has
// the order of struct rows: tokens by chunk, sequence and position, then padding.
static int64_t dense_row(const struct cpattn_check *check, enum cpattn_tensor tensor, int64_t row)
{
    if (!check->placed || !tensor_has_tokens(tensor))
        return row;
    return check->rows[tensor_side(tensor)].order[row];
}

// Dense layout of a tensor: [rows][heads][dim]; LSE and biases [heads][rows][dim].
static struct pack pack_of(const struct cpattn_check *check, enum cpattn_tensor tensor,
                           const struct cpattn_array *array)
{
    struct cpattn_shape s = cpattn_check_shape(check, tensor);
    bool outside = tensor == CPATTN_TENSOR_LSE || tensor == CPATTN_TENSOR_BIAS ||
                   tensor == CPATTN_TENSOR_DBIAS;
    return (struct pack){.array = array->data,
                         .head_stride = array->head_stride,
                         .dense_row = outside ? s.dim : (int64_t)s.heads * s.dim,
                         .dense_head = outside ? s.rows * s.dim : s.dim,
                         .rows = s.rows,
                         .heads = s.heads,
                         .dim = s.dim,
                         .element_bytes = tensor_element_bytes(&check->c, tensor)};
}

static size_t pack_bytes(const struct pack *p)
{
    return (size_t)(p->rows * p->heads * p->dim) * p->element_bytes;
}

static bool is_dense(const struct cpattn_check *check, enum cpattn_tensor tensor,
                     const struct cpattn_array *array, const struct pack *p)
{
    if ((p->heads > 1 && array->head_stride != p->dense_head) || check->placed)
        return false;
    for (int64_t row = 0; row < p->rows; row++)
        if (array_offset(array, dense_row(check, tensor, row), 0) != row * p->dense_row)
            return false;
    return true;
}

static bool pack_offsets(struct device_judge *j, const struct cpattn_check *check,
                         enum cpattn_tensor tensor, const struct cpattn_array *array,
                         struct pack *p)
{
    size_t bytes = (size_t)p->rows * sizeof(int64_t);
    int64_t *offsets = malloc(bytes + 1);
    if (!offsets)
        return queue_note(&j->queue, cudaErrorMemoryAllocation, "the rows of a tensor");
    for (int64_t row = 0; row < p->rows; row++)
        offsets[row] = array_offset(array, dense_row(check, tensor, row), 0);
    p->offsets = queue_copy(&j->queue, offsets, bytes);
    free(offsets);
    return p->offsets;
}

// ---- the case -----------------------------------------------------------------------------------

// The case as one rank computes it alone: all tokens are judged and heads are not exchanged. The
// rows of placed tokens are consecutive, so sbhd becomes bshd.
static struct cp_case judged_case(const struct cpattn_check *check)
{
    struct cp_case c = check->c;
    c.verify = VERIFY_FULL;
    c.comm = COMM_P2P;
    if (check->placed && c.format == FORMAT_SBHD)
        c.format = FORMAT_BSHD;
    return c;
}

// ---- inputs -------------------------------------------------------------------------------------

// Copies the check's given inputs to the device, unless they are there, and frees earlier ones.
static bool given_push(struct device_judge *j, const struct cpattn_check *check)
{
    const struct input_source *source = check->c.source;
    cudaError_t result = cudaSuccess;
    if (j->given_count == check->given_count)
        return true;
    given_free(j);
    for (int t = 0; t < INPUTS && source && result == cudaSuccess; t++) {
        size_t bytes = source->tensors[t] ? (size_t)whole_bytes(source->c, t) : 0;
        if (bytes > 0)
            result = cudaMalloc(&j->given[t], bytes);
        // On the queue's stream: it does not wait for copies on the default stream.
        if (bytes > 0 && result == cudaSuccess)
            result = cudaMemcpyAsync(j->given[t], source->tensors[t], bytes, cudaMemcpyHostToDevice,
                                     j->queue.stream);
    }
    if (result == cudaSuccess)
        j->given_count = check->given_count;
    else
        given_free(j);
    return queue_note(&j->queue, result, "the given inputs");
}

// Gathers the check's tokens from a given tensor into the dense layout.
static void given_take(struct device_judge *j, const struct cpattn_check *check,
                       enum cpattn_tensor tensor, const struct pack *dense)
{
    const struct input_source *source = check->c.source;
    enum shard_side side = tensor_side(tensor);
    const struct rows *rows = &check->rows[side];
    struct pack p = *dense;
    int64_t *offsets = malloc((size_t)p.rows * sizeof(*offsets) + 1);
    if (!offsets) {
        queue_note(&j->queue, cudaErrorMemoryAllocation, "the rows of a tensor");
        return;
    }
    for (int64_t i = 0; i < p.rows; i++) {
        int64_t row = dense_row(check, tensor, i);
        int64_t whole = source->first[side][rows->sequence[row]] +
                        rows->position[row] * whole_row_step(source->c);
        offsets[i] = row_is_padding(check, side, row) ? -1 : whole * p.heads * p.dim;
    }
    p.array = j->given[tensor];
    p.head_stride = p.dim;
    p.offsets = queue_copy(&j->queue, offsets, (size_t)p.rows * sizeof(*offsets));
    free(offsets);
    if (p.offsets)
        pack_read(&j->queue, &p);
}

static bool is_given(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    return check->c.source && (int)tensor < INPUTS && check->c.source->tensors[tensor];
}

static void dense_draw(struct device_judge *j, const struct cpattn_check *check,
                       enum cpattn_tensor tensor, const struct cp_case *c, struct span *spans,
                       int count, void *data)
{
    if (tensor == CPATTN_TENSOR_SINK)
        inputs_cuda_fill_sink(&j->queue, c, data);
    else if (tensor == CPATTN_TENSOR_BIAS)
        inputs_cuda_fill_bias(&j->queue, c, check->rank, spans, data);
    else
        inputs_cuda_fill_spans(&j->queue, c, tensor_input(tensor), spans, count,
                               check->placed ? 1 : shard_row_step(c), data);
}

static void fill_start(struct device_judge *j, const struct cpattn_check *check,
                       enum cpattn_tensor tensor, const struct cpattn_array *array,
                       struct span *spans, int count)
{
    struct cp_case c = judged_case(check);
    struct pack p = pack_of(check, tensor, array);
    size_t bytes = pack_bytes(&p);
    bool dense = is_dense(check, tensor, array, &p);
    p.dense = dense ? array->data : queue_scratch(&j->queue, bytes);
    if (!p.dense)
        return;
    if (is_given(check, tensor) && !given_push(j, check))
        return;
    // Padding keeps these bits, which are all ones: a NaN in every dtype.
    queue_note(&j->queue, cudaMemsetAsync(p.dense, 0xff, bytes, j->queue.stream), "padding");
    if (is_given(check, tensor))
        given_take(j, check, tensor, &p);
    else
        dense_draw(j, check, tensor, &c, spans, count, p.dense);
    if (!dense && pack_offsets(j, check, tensor, array, &p))
        pack_write(&j->queue, &p);
}

static enum status judge_fill(struct device_judge *j, const struct cpattn_check *check,
                              enum cpattn_tensor tensor, const struct cpattn_array *array,
                              struct error *error)
{
    int count = 0, before = device_enter(j);
    struct span *spans = spans_of_check(check, tensor_side(tensor), 1, &count);
    enum status status = STATUS_OK;
    if (spans) {
        judge_follow(j);
        fill_start(j, check, tensor, array, spans, count);
        status = queue_finish(&j->queue, error);
    } else {
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the tokens of a check");
    }
    free(spans);
    device_leave(before);
    return status;
}

// ---- copies -------------------------------------------------------------------------------------

static struct pack pack_of_array(const struct device_array *a)
{
    return (struct pack){.array = a->array->data,
                         .head_stride = a->array->head_stride,
                         .dense_row = (int64_t)a->shape.heads * a->shape.dim,
                         .dense_head = a->shape.dim,
                         .rows = a->shape.rows,
                         .heads = a->shape.heads,
                         .dim = a->shape.dim,
                         .element_bytes = a->element_bytes};
}

// Allocates dense memory and the offsets of the array's rows. False: memory is short; the queue
// stores the error.
static bool copy_begin(struct device_judge *j, const struct device_array *a, struct pack *p)
{
    size_t bytes = (size_t)a->shape.rows * sizeof(int64_t);
    int64_t *offsets = malloc(bytes + 1);
    *p = pack_of_array(a);
    if (!offsets)
        return queue_note(&j->queue, cudaErrorMemoryAllocation, "the rows of a tensor");
    for (int64_t row = 0; row < a->shape.rows; row++)
        offsets[row] = array_offset(a->array, row, 0);
    p->offsets = queue_copy(&j->queue, offsets, bytes);
    p->dense = queue_scratch(&j->queue, pack_bytes(p));
    free(offsets);
    return p->offsets && p->dense;
}

static enum status judge_get(struct device_judge *j, const struct device_array *array, void *host,
                             struct error *error)
{
    struct pack p;
    int before = device_enter(j);
    judge_follow(j);
    if (copy_begin(j, array, &p)) {
        pack_read(&j->queue, &p);
        queue_pull(&j->queue, host, p.dense, pack_bytes(&p));
    }
    enum status status = queue_finish(&j->queue, error);
    device_leave(before);
    return status;
}

static enum status judge_put(struct device_judge *j, const struct device_array *array,
                             const void *host, struct error *error)
{
    struct pack p;
    int before = device_enter(j);
    judge_follow(j);
    if (copy_begin(j, array, &p)) {
        queue_push(&j->queue, p.dense, host, pack_bytes(&p));
        pack_write(&j->queue, &p);
    }
    enum status status = queue_finish(&j->queue, error);
    device_leave(before);
    return status;
}

// ---- verdicts -----------------------------------------------------------------------------------

// The state of one verdict.
struct judgement {
    struct device_judge *j;
    struct cpattn_check *check;
    const struct cpattn_array *results;
    struct cp_case c;
    struct span *spans[2];
    struct verification_cuda v;
    struct pack packs[CPATTN_TENSORS];
    bool copied[CPATTN_TENSORS];
};

static bool is_gradient(enum cpattn_tensor tensor)
{
    return tensor != CPATTN_TENSOR_OUT && tensor != CPATTN_TENSOR_LSE &&
           tensor != CPATTN_TENSOR_MAX_LOGIT;
}

// Takes the case, without backward if no gradient is judged.
static void case_take(struct judgement *x)
{
    bool gradients = false;
    for (int t = 0; t < CPATTN_TENSORS; t++)
        gradients = gradients || (x->results[t].data && is_gradient((enum cpattn_tensor)t));
    x->c = judged_case(x->check);
    x->c.training = x->c.training && gradients;
}

static enum status judgement_init(struct judgement *x, struct error *error)
{
    struct cpattn_check *check = x->check;
    case_take(x);
    x->v = (struct verification_cuda){.c = &x->c,
                                      .rank = check->rank,
                                      .queue = &x->j->queue,
                                      .host = &x->j->host,
                                      .device = &x->j->memory,
                                      .alone = true,
                                      .own_sums = check->sums == CPATTN_SUMS_OWN,
                                      .placed = check->placed};
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        x->spans[side] = spans_of_check(check, (enum shard_side)side, 1, &x->v.span_count[side]);
        x->v.spans[side] = x->spans[side];
        x->v.token_rows[side] = check->rows[side].count;
    }
    if (x->spans[SIDE_Q] && x->spans[SIDE_KV])
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the tokens of a check");
}

static void judgement_fini(struct judgement *x)
{
    free(x->spans[SIDE_Q]);
    free(x->spans[SIDE_KV]);
}

// Sets the addresses of the dense results. memory_reserve() calls this before dense memory exists,
// with the caller's addresses: only whether they are NULL matters then.
static void results_place(struct judgement *x, void *const dense[CPATTN_TENSORS])
{
    x->v.results = (struct rank_results){.out = dense[CPATTN_TENSOR_OUT],
                                         .lse = dense[CPATTN_TENSOR_LSE],
                                         .dq = dense[CPATTN_TENSOR_DQ],
                                         .dk = dense[CPATTN_TENSOR_DK],
                                         .dv = dense[CPATTN_TENSOR_DV],
                                         .dsink = dense[CPATTN_TENSOR_DSINK],
                                         .max_logit = dense[CPATTN_TENSOR_MAX_LOGIT],
                                         .dbias = dense[CPATTN_TENSOR_DBIAS]};
}

static enum status memory_reserve(struct judgement *x, struct error *error)
{
    void *places[CPATTN_TENSORS] = {NULL};
    size_t host = 0, device = 0;
    enum status status = STATUS_OK;
    for (int t = 0; t < CPATTN_TENSORS && status == STATUS_OK; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        const struct cpattn_array *array = &x->results[t];
        if (!(places[t] = array->data))
            continue;
        x->packs[t] = pack_of(x->check, tensor, array);
        x->copied[t] = !is_dense(x->check, tensor, array, &x->packs[t]);
        if (x->copied[t])
            status = device_arena_add(&device, (int64_t)pack_bytes(&x->packs[t]), 1, error);
    }
    results_place(x, places);
    if (status == STATUS_OK)
        status = verify_cuda_reserve_for(&x->v, &host, &device, error);
    if (status == STATUS_OK)
        status = arena_reserve(&x->j->host, host, error);
    if (status == STATUS_OK)
        status = device_arena_reserve(&x->j->memory, device, error);
    return status;
}

static void results_take(struct judgement *x)
{
    void *places[CPATTN_TENSORS] = {NULL};
    for (int t = 0; t < CPATTN_TENSORS; t++) {
        struct pack *p = &x->packs[t];
        places[t] = x->results[t].data;
        if (!x->copied[t])
            continue;
        p->dense = places[t] = device_arena_take(&x->j->memory, (int64_t)pack_bytes(p), 1);
        if (pack_offsets(x->j, x->check, (enum cpattn_tensor)t, &x->results[t], p))
            pack_read(&x->j->queue, p);
    }
    results_place(x, places);
}

static enum status judgement_run(struct judgement *x, device_failed *failed,
                                 struct rank_report *report, struct error *error)
{
    struct verify_cuda *verify = NULL;
    enum status status = memory_reserve(x, error), finished;
    if (status != STATUS_OK)
        return status;
    judge_follow(x->j);
    if (x->check->given && !given_push(x->j, x->check))
        return queue_finish(&x->j->queue, error);
    if (x->check->given)
        memcpy(x->v.given, x->j->given, sizeof(x->j->given));
    results_take(x);
    status = verify_cuda_start(&x->v, x->j->events[0], x->j->events[1], &verify, error);
    finished = queue_finish(&x->j->queue, error);
    status = status == STATUS_OK ? finished : status;
    if (status != STATUS_OK)
        return status;
    verify_cuda_finish(verify, report);
    if (!report->pass)
        failed(x->check, x->results, verify_cuda_statistics, verify, report);
    return STATUS_OK;
}

static enum status judge_verify(struct device_judge *j, struct cpattn_check *check,
                                const struct cpattn_array *results, device_failed *failed,
                                struct rank_report *report, struct error *error)
{
    struct judgement x = {.j = j, .check = check, .results = results};
    int before = device_enter(j);
    enum status status = judgement_init(&x, error);
    if (status == STATUS_OK)
        status = judgement_run(&x, failed, report, error);
    judgement_fini(&x);
    device_arena_trim(&j->memory);
    device_leave(before);
    return status;
}

// ---- collectives and linear layers --------------------------------------------------------------

static void jobs_begin(struct device_judge *j, struct job_work *work)
{
    *work =
        (struct job_work){&collective_judge_cuda, &linear_tools_cuda, &j->queue, device_enter(j)};
    judge_follow(j);
}

static enum status jobs_room(struct device_judge *j, size_t bytes, void **room, struct error *error)
{
    size_t total = 0;
    enum status status = device_arena_add(&total, (int64_t)bytes, 1, error);
    if (status == STATUS_OK)
        status = device_arena_reserve(&j->memory, total, error);
    if (status == STATUS_OK)
        *room = device_arena_take(&j->memory, (int64_t)bytes, 1);
    return status;
}

static enum status jobs_end(struct device_judge *j, const struct job_work *work,
                            struct error *error)
{
    enum status status = queue_finish(&j->queue, error);
    device_arena_trim(&j->memory);
    device_leave(work->before);
    return status;
}

__attribute__((visibility("default"))) const struct check_device *cpattn_check_cuda_table(void);

const struct check_device *cpattn_check_cuda_table(void)
{
    static const struct check_device table = {.version = PACKAGE_VERSION,
                                              .state_bytes = sizeof(struct cpattn_check),
                                              .open = judge_open,
                                              .close = judge_close,
                                              .fill = judge_fill,
                                              .verify = judge_verify,
                                              .read = judge_read,
                                              .get = judge_get,
                                              .put = judge_put,
                                              .jobs_begin = jobs_begin,
                                              .jobs_room = jobs_room,
                                              .jobs_end = jobs_end};
    return &table;
}
