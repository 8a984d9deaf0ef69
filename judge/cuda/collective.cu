// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include "judge/cuda/collective_cuda.h"
#include "judge/cuda/digest_cuda.h"
#include "judge/cuda/dtype.cuh"

extern "C" {
#include "judge/digest.h"
}

#define THREADS       256
#define BLOCKS_PER_SM 4

static struct cuda_queue *queue_of(void *queue)
{
    return (struct cuda_queue *)queue;
}

static unsigned blocks_for(const struct cuda_queue *q, int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS, most = q->sm_count * BLOCKS_PER_SM;
    return (unsigned)(blocks < most ? blocks : most);
}

// ---- elements -----------------------------------------------------------------------------------

static __device__ union view_number element_read(const struct collective_view *v, const void *data,
                                                 int64_t i)
{
    union view_number number;
    number.whole = 0;
    switch (v->element) {
    case ELEMENT_FP32:
        number.real = ((const float *)data)[i];
        break;
    case ELEMENT_FP16:
        number.real = fp16::value(((const uint16_t *)data)[i]);
        break;
    case ELEMENT_BF16:
        number.real = bf16::value(((const uint16_t *)data)[i]);
        break;
    case ELEMENT_INT32:
        number.whole = ((const int32_t *)data)[i];
        break;
    case ELEMENT_INT64:
        number.whole = ((const int64_t *)data)[i];
        break;
    default:
        number.whole = ((const uint8_t *)data)[i];
        break;
    }
    return number;
}

// Converts a number to the bits of an element in memory. Any NaN becomes view_nan_bits().
static __device__ uint64_t element_bits(const struct collective_view *v, union view_number number)
{
    if (view_is_real(v) && number.real != number.real)
        return view_nan_bits(v);
    switch (v->element) {
    case ELEMENT_FP32:
        return __float_as_uint((float)number.real);
    case ELEMENT_FP16:
        return fp16::round((float)number.real);
    case ELEMENT_BF16:
        return bf16::round((float)number.real);
    case ELEMENT_INT32:
        return (uint32_t)number.whole;
    case ELEMENT_INT64:
        return (uint64_t)number.whole;
    default:
        return (uint8_t)number.whole;
    }
}

static __device__ uint64_t bits_read(const void *data, int bytes, int64_t i)
{
    return bytes == 8   ? ((const uint64_t *)data)[i]
           : bytes == 4 ? ((const uint32_t *)data)[i]
           : bytes == 2 ? ((const uint16_t *)data)[i]
                        : ((const uint8_t *)data)[i];
}

static __device__ void bits_write(void *data, int bytes, int64_t i, uint64_t bits)
{
    if (bytes == 8)
        ((uint64_t *)data)[i] = bits;
    else if (bytes == 4)
        ((uint32_t *)data)[i] = (uint32_t)bits;
    else if (bytes == 2)
        ((uint16_t *)data)[i] = (uint16_t)bits;
    else
        ((uint8_t *)data)[i] = (uint8_t)bits;
}

__global__ __launch_bounds__(THREADS) void fill_kernel(struct collective_view v, int bytes,
                                                       int64_t count, void *send)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        bits_write(send, bytes, i, element_bits(&v, view_drawn(&v, v.rank, i)));
}

static enum status device_fill(void *queue, const struct collective *c, int rank, void *send,
                               struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    struct collective_view v;
    int64_t count = collective_send_count(c, rank);
    collective_view_set(&v, c, rank);
    if (count == 0)
        return STATUS_OK;
    fill_kernel<<<blocks_for(q, count), THREADS, 0, q->stream>>>(
        v, collective_element_bytes(c->dtype), count, send);
    queue_launched(q, "the elements of a collective");
    return queue_report(q, error);
}

// ---- the receive --------------------------------------------------------------------------------

static __device__ void tally_zero(struct view_tally *t)
{
    memset(t, 0, sizeof(*t));
    t->first_bad = INT64_MAX;
}

// Compares the elements of a receive with their right values. Writes one tally per block, in which
// the tallies of the threads are joined in a fixed order.
__global__ __launch_bounds__(THREADS) void receive_kernel(struct collective_view v, int bytes,
                                                          const void *receive, int64_t count,
                                                          struct view_tally *tallies)
{
    __shared__ struct view_tally shared[THREADS];
    struct view_tally mine;
    int64_t step = (int64_t)gridDim.x * THREADS;
    bool real = view_is_real(&v);
    tally_zero(&mine);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        struct view_origin origin = view_origin_of(&v, i);
        union view_number got = element_read(&v, receive, i);
        if (real)
            view_tally_real(&v, &mine, i, got.real,
                            bits_read(receive, bytes, i) == view_nan_bits(&v),
                            view_right_real(&v, origin));
        else
            view_tally_whole(&mine, i, got.whole, view_right_whole(&v, origin));
    }
    shared[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            view_tally_join(&shared[threadIdx.x], &shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        tallies[blockIdx.x] = shared[0];
}

// view_tally_join() for the host.
static void tally_add(struct view_tally *t, const struct view_tally *more)
{
    t->error2 += more->error2;
    t->twin2 += more->twin2;
    t->bound2 += more->bound2;
    t->right2 += more->right2;
    t->along += more->along;
    t->twin_along += more->twin_along;
    t->chance2 += more->chance2;
    t->chance4 += more->chance4;
    t->max_abs = more->max_abs > t->max_abs ? more->max_abs : t->max_abs;
    t->worst = more->worst > t->worst ? more->worst : t->worst;
    t->mismatches += more->mismatches;
    t->nonfinite += more->nonfinite;
    t->first_bad = more->first_bad < t->first_bad ? more->first_bad : t->first_bad;
}

static enum status device_read(void *queue, const void *data, size_t bytes, void *to,
                               struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    queue_note(q, cudaMemcpyAsync(to, data, bytes, cudaMemcpyDeviceToHost, q->stream),
               "reading a result");
    return queue_finish(q, error);
}

static enum status first_bad_read(void *queue, const struct collective_view *v, int bytes,
                                  const void *data, struct figures *figures, struct error *error)
{
    uint64_t memory = 0;
    enum status status =
        device_read(queue, (const char *)data + figures->first_bad.position * bytes, (size_t)bytes,
                    &memory, error);
    if (status != STATUS_OK)
        return status;
    union view_number got = collective_element(v, &memory, 0);
    bool real =
        v->element == ELEMENT_FP32 || v->element == ELEMENT_FP16 || v->element == ELEMENT_BF16;
    figures->first_bad_got = real ? got.real : (double)got.whole;
    return STATUS_OK;
}

static enum status device_receive(void *queue, const struct collective *c, int rank,
                                  const void *receive, struct figures *figures, struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    struct collective_view v;
    struct view_tally tally;
    void *device;
    memset(&tally, 0, sizeof(tally));
    tally.first_bad = INT64_MAX;
    collective_view_set(&v, c, rank);
    int64_t count = v.first[v.blocks];
    int element = collective_element_bytes(c->dtype);
    unsigned blocks = blocks_for(q, count);
    size_t bytes = blocks * sizeof(tally);
    struct view_tally *host = (struct view_tally *)queue_stage(q, bytes, &device);
    if (host && count > 0) {
        receive_kernel<<<blocks, THREADS, 0, q->stream>>>(v, element, receive, count,
                                                          (struct view_tally *)device);
        queue_launched(q, "the verdict of a collective");
        queue_pull(q, host, device, bytes);
    }
    enum status status = queue_finish(q, error);
    if (status != STATUS_OK)
        return status;
    for (unsigned i = 0; i < blocks; i++)
        tally_add(&tally, &host[i]);
    collective_figures(&v, &tally, figures);
    return tally.mismatches > 0 ? first_bad_read(queue, &v, element, receive, figures, error)
                                : STATUS_OK;
}

// ---- the send -----------------------------------------------------------------------------------

struct send_tally {
    unsigned long long mismatches, first_bad;
};

// Counts changed elements of a send. Skips elements [from, to), which share memory with the
// receive.
__global__ __launch_bounds__(THREADS) void send_kernel(struct collective_view v, int bytes,
                                                       int64_t count, const void *send,
                                                       int64_t from, int64_t to,
                                                       struct send_tally *tally)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        if (i >= from && i < to)
            continue;
        if (bits_read(send, bytes, i) == element_bits(&v, view_drawn(&v, v.rank, i)))
            continue;
        atomicAdd(&tally->mismatches, 1ull);
        atomicMin(&tally->first_bad, (unsigned long long)i);
    }
}

static enum status device_send(void *queue, const struct collective *c, int rank, const void *send,
                               const void *receive, struct figures *figures, struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    struct collective_view v;
    void *device;
    int bytes = collective_element_bytes(c->dtype);
    int64_t count = collective_send_count(c, rank), from = 0, to = 0;
    collective_view_set(&v, c, rank);
    if (receive) {
        from = ((const char *)receive - (const char *)send) / bytes;
        to = from + collective_receive_count(c, rank);
    }
    figures->elements = figures->judged = count;
    struct send_tally *host = (struct send_tally *)queue_stage(q, sizeof(*host), &device);
    if (count == 0 || !host)
        return queue_finish(q, error);
    host->mismatches = 0;
    host->first_bad = UINT64_MAX;
    queue_push(q, device, host, sizeof(*host));
    send_kernel<<<blocks_for(q, count), THREADS, 0, q->stream>>>(v, bytes, count, send, from, to,
                                                                 (struct send_tally *)device);
    queue_launched(q, "the verdict of a collective");
    queue_pull(q, host, device, sizeof(*host));
    enum status status = queue_finish(q, error);
    if (status != STATUS_OK || host->mismatches == 0)
        return status;
    figures->mismatches = (int64_t)host->mismatches;
    figures->first_bad.position = (int64_t)host->first_bad;
    figures->first_bad_expected = collective_sent(&v, figures->first_bad.position);
    figures->broken |= RULE_PADDING;
    return first_bad_read(queue, &v, bytes, send, figures, error);
}

// ---- the table ----------------------------------------------------------------------------------

static enum status device_set(void *queue, void *data, int value, size_t bytes, struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    queue_note(q, cudaMemsetAsync(data, value, bytes, q->stream), "setting memory");
    return queue_report(q, error);
}

static enum status device_digest(void *queue, const void *data, size_t bytes, void *spare,
                                 uint64_t *digest, struct error *error)
{
    struct cuda_queue *q = queue_of(queue);
    if (bytes == 0) {
        *digest = digest_add(DIGEST_START, NULL, 0);
        return STATUS_OK;
    }
    if (spare) {
        queue_note(q, cudaMemcpyAsync(spare, data, bytes, cudaMemcpyDeviceToDevice, q->stream),
                   "digest");
        data = spare;
    }
    const uint64_t *sum = digest_cuda_sum(q, data, bytes);
    enum status status = queue_finish(q, error);
    if (status == STATUS_OK)
        *digest = digest_join(DIGEST_START, *sum, bytes);
    return status;
}

extern "C" const struct collective_judge collective_judge_cuda = {
    device_set, device_read, device_fill, device_receive, device_send, device_digest};
