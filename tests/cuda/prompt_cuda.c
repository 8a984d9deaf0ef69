// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/prompt_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/peer_kernel.h"
#include "transport/stream_words.h"

#define BLOCKS_MAX 64
#define TIMINGS    2 // calls of cudaEventElapsedTime() for the peer transport; NCCL's follow
// cudaIpcCloseMemHandle() takes this long, so that cudaFree() detects memory that its owner frees
// while a peer still has it mapped.
#define UNMAP_NS   20000000

struct prompt_device prompt_devices[WORLD_SIZE_MAX];

// Allocations of device memory.
static struct block {
    char *memory; // NULL: unused entry
    size_t bytes;
    int rank, mappings; // owner; number of peers that have mapped the memory
} blocks[BLOCKS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int rank_here, timings;

#define insist(holds, what)                                                                        \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "prompt_cuda: %s\n", what);                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

void prompt_reset(size_t total_bytes)
{
    memset(blocks, 0, sizeof(blocks));
    memset(prompt_devices, 0, sizeof(prompt_devices));
    for (int rank = 0; rank < WORLD_SIZE_MAX; rank++)
        prompt_devices[rank].total_bytes = total_bytes;
}

void prompt_enter(int rank)
{
    rank_here = rank;
    timings = 0;
}

// ---- memory -------------------------------------------------------------------------------------

static struct block *block_of(const void *memory)
{
    for (int i = 0; i < BLOCKS_MAX; i++)
        if (blocks[i].memory == memory)
            return &blocks[i];
    return NULL;
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    struct prompt_device *d = &prompt_devices[rank_here];
    if (size > d->total_bytes - d->taken_bytes) {
        d->taken_bytes -= ++d->refusals == 3 ? d->leaving_bytes : 0;
        return cudaErrorMemoryAllocation;
    }
    char *memory = malloc(size);
    insist(memory, "no memory");
    pthread_mutex_lock(&lock);
    struct block *b = block_of(NULL);
    insist(b, "too many pieces of memory");
    *b = (struct block){memory, size, rank_here, 0};
    pthread_mutex_unlock(&lock);
    d->taken_bytes += size;
    *devPtr = memory;
    return cudaSuccess;
}

cudaError_t cudaFree(void *devPtr)
{
    pthread_mutex_lock(&lock);
    struct block *b = devPtr ? block_of(devPtr) : NULL;
    insist(b && b->rank == rank_here, "memory of another rank is freed");
    insist(b->mappings == 0, "memory is freed that a peer has mapped");
    prompt_devices[rank_here].taken_bytes -= b->bytes;
    b->memory = NULL;
    pthread_mutex_unlock(&lock);
    free(devPtr);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const struct prompt_device *d = &prompt_devices[rank_here];
    *total_bytes = d->total_bytes;
    *free_bytes = d->total_bytes - d->taken_bytes;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &devPtr, sizeof(devPtr));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    (void)flags;
    memcpy(devPtr, &handle, sizeof(*devPtr));
    pthread_mutex_lock(&lock);
    struct block *b = block_of(*devPtr);
    insist(b && b->rank != rank_here, "what is mapped is no memory of a peer");
    b->mappings++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    const struct timespec time = {.tv_nsec = UNMAP_NS};
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    struct block *b = block_of(devPtr);
    insist(b && b->mappings > 0, "what is unmapped is not mapped");
    b->mappings--;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    memset(devPtr, value, count);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(devPtr, value, count);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(dst, src, count);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    for (size_t row = 0; row < height; row++)
        memcpy((char *)dst + row * dpitch, (const char *)src + row * spitch, width);
    return cudaSuccess;
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    (void)p;
    (void)stream;
    insist(false, "boxes are copied here");
    return cudaErrorUnknown;
}

// ---- stream memory operations -------------------------------------------------------------------

static void word_await(const uint32_t *place, uint32_t value)
{
    while ((int32_t)(__atomic_load_n(place, __ATOMIC_ACQUIRE) - value) < 0)
        sched_yield();
}

static CUresult words_run(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                          unsigned int flags)
{
    (void)stream;
    (void)flags;
    for (unsigned int i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *p = &operations[i];
        if (p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            __atomic_store_n((uint32_t *)(uintptr_t)p->writeValue.address, p->writeValue.value,
                             __ATOMIC_RELEASE);
        else
            word_await((const uint32_t *)(uintptr_t)p->waitValue.address, p->waitValue.value);
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                             unsigned int cudaVersion, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    stream_words_run *function = words_run;
    (void)cudaVersion;
    (void)flags;
    insist(strcmp(symbol, "cuStreamBatchMemOp") == 0, "another function of the driver");
    memcpy(funcPtr, &function, sizeof(function));
    *driverStatus = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t peer_kernel_put(const struct kernel_exchange *x, cudaStream_t stream)
{
    (void)x;
    (void)stream;
    insist(false, "ranks that share a device exchange by a kernel");
    return cudaErrorUnknown;
}

// ---- streams and events -------------------------------------------------------------------------

static char thing; // every stream and event handle points to it

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    (void)flags;
    (void)priority;
    *pStream = (cudaStream_t)(void *)&thing;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    (void)stream;
    *pCaptureStatus = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    *leastPriority = *greatestPriority = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    *event = (cudaEvent_t)(void *)&thing;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    const struct prompt_device *d = &prompt_devices[rank_here];
    (void)start;
    (void)end;
    *ms = timings++ < TIMINGS ? d->peer_ms : d->nccl_ms;
    return cudaSuccess;
}

// ---- errors -------------------------------------------------------------------------------------

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "cudaError";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "made up";
}

cudaError_t cudaGetDevice(int *device)
{
    *device = rank_here;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    *properties = (struct cudaDeviceProp){.name = "a device"};
    return cudaSuccess;
}

// ---- NCCL ---------------------------------------------------------------------------------------

struct ncclComm {
    int number; // counts the rank's communicators, from 1 on
};

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    memset(uniqueId, 0, sizeof(*uniqueId));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    struct prompt_device *d = &prompt_devices[rank];
    (void)nranks;
    (void)commId;
    insist(rank == rank_here, "a communicator of another rank");
    *comm = calloc(1, sizeof(**comm));
    insist(*comm, "no memory");
    if (d->communicators < 3) {
        d->channels[d->communicators] =
            config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs;
        d->beside[d->communicators] = d->taken_bytes;
    }
    (*comm)->number = ++d->communicators;
    d->open_communicators++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    prompt_devices[rank_here].open_communicators--;
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    (void)comm;
    *asyncError = ncclSuccess;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    (void)result;
    return "made up";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

// nccl.h declares these two functions without prototypes.
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    (void)sendbuff;
    (void)count;
    (void)datatype;
    (void)peer;
    (void)stream;
    prompt_devices[rank_here].collected_by = comm->number;
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return ncclSend(recvbuff, count, datatype, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    (void)recvbuff;
    (void)op;
    return ncclSend(sendbuff, count, datatype, 0, comm, stream);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    (void)recvbuff;
    return ncclSend(sendbuff, sendcount, datatype, 0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    (void)op;
    return ncclAllGather(sendbuff, recvbuff, recvcount, datatype, comm, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)root;
    return ncclAllGather(sendbuff, recvbuff, count, datatype, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}
