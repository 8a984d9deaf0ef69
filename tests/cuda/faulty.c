// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/faulty.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/delay_cuda.h"
#include "rank/cuda/engine.h"

// A wedged stream continues after so many delay kernels of WEDGED_NS nanoseconds each.
#define WEDGED_LAUNCHES 60
#define WEDGED_NS       2000000000

// Upper bound on the allocations that fill a device. Their size starts at 128 GiB and is halved
// whenever an allocation fails, down to 1 MiB.
#define PIECES_MAX 64

static const struct engine_ops *sound; // of the CUDA engine
static struct engine_ops ops;          // the same with faults

// True if the case's model injects this fault in this rank.
static bool is_asked_for(const struct job *j, const char *fault)
{
    size_t length = strlen(fault);
    const char *model = j->c->model;
    int rank = j->c->world_size - 1;
    if (strncmp(model, fault, length) != 0 || (model[length] && model[length] != '-'))
        return false;
    if (model[length])
        rank = (int)strtol(model + length + 1, NULL, 10);
    return j->rank == rank;
}

static void go_astray(const struct job *j)
{
    for (int i = 0; i < j->plan->buffer_count; i++)
        if (j->plan->buffers[i].role == BUFFER_INPUT_DO)
            j->buffers[i] = (void *)(uintptr_t)4096;
}

// Enqueues delay kernels in front of the plan. They block the backend's stream.
static void wedge(struct engine *e)
{
    for (int i = 0; i < WEDGED_LAUNCHES; i++)
        (void)delay_cuda(attention_cuda_stream(engine_cuda_backend(e)), WEDGED_NS);
}

// Doubles each dK element of a bf16 case by adding 1 to its exponent. Zeros and subnormal numbers
// stay unchanged. dV directly follows dK in memory.
static enum status double_dk(const struct job *j, struct error *error)
{
    const struct rank_results results = job_results(j);
    void *dk = (void *)results.dk;
    size_t count = (size_t)((const char *)results.dv - (const char *)results.dk) / 2;
    uint16_t *copy = malloc(count * 2 + 1);
    bool done = copy && cudaDeviceSynchronize() == cudaSuccess &&
                cudaMemcpy(copy, dk, count * 2, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; done && i < count; i++)
        copy[i] = copy[i] & 0x7f80 ? (uint16_t)(copy[i] + 0x80) : copy[i];
    done = done && cudaMemcpy(dk, copy, count * 2, cudaMemcpyHostToDevice) == cudaSuccess;
    free(copy);
    return done ? STATUS_OK : error_set(error, STATUS_INTERNAL, "dk could not be doubled");
}

// Runs only the first half of the plan, so that the peers wait in the middle of their plans.
static enum status half_execute(struct engine *e, struct job *j, struct error *error)
{
    int32_t op_count = j->plan->op_count;
    j->plan->op_count = op_count / 2;
    enum status status = sound->execute(e, j, error);
    j->plan->op_count = op_count;
    return status;
}

static enum status faulty_admit(struct engine *e, const struct job *j, struct error *error)
{
    if (!is_asked_for(j, "greedy"))
        return sound->admit(e, j, error);
    sound->release(e);
    void *pieces[PIECES_MAX];
    int count = 0;
    for (size_t bytes = (size_t)1 << 37; bytes >= (size_t)1 << 20 && count < PIECES_MAX;) {
        if (cudaMalloc(&pieces[count], bytes) == cudaSuccess)
            count++;
        else
            bytes /= 2;
    }
    (void)cudaGetLastError();
    enum status status = sound->admit(e, j, error);
    while (count > 0)
        (void)cudaFree(pieces[--count]);
    return status;
}

static enum status faulty_execute(struct engine *e, struct job *j, struct error *error)
{
    static const struct {
        const char *fault;
        int signal; // raised after half of the plan; 0: the rank only sleeps
    } deeds[] = {{"asleep", 0}, {"killed", SIGKILL}, {"stopped", SIGSTOP}};
    if (is_asked_for(j, "astray"))
        go_astray(j);
    if (is_asked_for(j, "wedged"))
        wedge(e);
    for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
        if (!is_asked_for(j, deeds[i].fault))
            continue;
        enum status status = half_execute(e, j, error);
        if (status != STATUS_OK)
            return status;
        usleep(100000);
        if (deeds[i].signal)
            raise(deeds[i].signal);
        pause();
    }
    enum status status = sound->execute(e, j, error);
    if (status == STATUS_OK && is_asked_for(j, "doubled"))
        status = double_dk(j, error);
    return status;
}

static enum status faulty_create(const struct engine_setup *setup, struct engine **engine,
                                 struct error *error)
{
    // KEEP_MIB is 0: the engine keeps no memory between cases, so that each case allocates.
    char nothing[] = "0";
    char *const arguments[] = {setup->arguments[0], nothing, NULL};
    struct engine_setup lean = *setup;
    lean.arguments = arguments;
    enum status status = engine_cuda.create(&lean, engine, error);
    if (status != STATUS_OK)
        return status;
    sound = (*engine)->ops;
    ops = *sound;
    ops.admit = faulty_admit;
    ops.execute = faulty_execute;
    (*engine)->ops = &ops;
    return STATUS_OK;
}

const struct engine_kind engine_faulty = {.program = "faulty_rank",
                                          .arguments = " DEVICE [KEEP_MIB]",
                                          .argument_min = 1,
                                          .argument_max = 2,
                                          .create = faulty_create};
