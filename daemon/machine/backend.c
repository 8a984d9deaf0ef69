// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/plural.h"
#include "daemon/machine/gpus.h"
#include "daemon/machine/host.h"
#include "daemon/process/spawn.h"

// Initializing the driver of a large machine takes seconds.
#define PROBE_LIMIT_MS   30000
// Minimum memory of every GPU for spares by default.
#define SPARES_BYTES_MIN (INT64_C(32) << 30)

// Refuses a list of GPUs. `reason` says why no GPU is used if the backend is not configured.
static enum status choose_cpu(const struct settings *config, const struct error *reason,
                              struct backend *b, struct error *error)
{
    bool configured = config->backend == BACKEND_CPU;
    char list[DEVICES_TEXT_MAX];
    devices_write(&config->devices, list);
    if (config->devices.named)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "--devices %s is a list of GPUs, and on the CPU a number of cores from 1 "
                         "to %d is expected; the ranks run on the CPU because %s%s",
                         list, DEVICES_MAX, configured ? "of --backend cpu" : "no GPU is usable: ",
                         configured ? "" : reason->text);
    strcpy(b->name, "cpu");
    b->program = config->rank_program;
    b->device_count = config->devices.count > 0 ? config->devices.count : host_cores();
    b->ranks_per_device = WORLD_SIZE_MAX;
    b->memory_bytes = host_memory_available() / 2;
    return STATUS_OK;
}

static const struct wire_device *gpu_find(const struct wire_device *all, int count, int index)
{
    for (int i = 0; i < count; i++)
        if (all[i].index == index)
            return &all[i];
    return NULL;
}

static void gpu_take(struct backend *b, const struct wire_device *gpu)
{
    b->gpus[b->gpu_count++] = *gpu;
    b->memory_bytes += gpu->memory_bytes;
    log_notice("device index=%" PRId32 " arch=%s memory_mib=%" PRId64 " name=%s", gpu->index,
               gpu->arch, gpu->memory_bytes >> 20, log_quote(&(struct log_quoted){0}, gpu->name));
}

// Takes the GPUs that the choice names, or the first ones of the machine.
static enum status gpus_take(const struct device_choice *choice, const struct wire_device *all,
                             int count, struct backend *b, struct error *error)
{
    for (int index = 0; index < DEVICES_MAX; index++) {
        const struct wire_device *gpu = gpu_find(all, count, index);
        if (!(choice->named >> index & 1))
            continue;
        if (!gpu)
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "--devices names the GPU %d, which is not among the %d of this "
                             "machine; `%s --probe` lists them",
                             index, count, b->program);
        gpu_take(b, gpu);
    }
    if (choice->named)
        return STATUS_OK;
    if (choice->count > count)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "--devices asks for %d GPU%s, and this machine has %d", choice->count,
                         plural(choice->count), count);
    for (int i = 0; i < (choice->count > 0 ? choice->count : count); i++)
        gpu_take(b, &all[i]);
    return STATUS_OK;
}

// Default of --spares: on if every GPU has SPARES_BYTES_MIN per rank. With spares two pools have
// contexts, communicators and kernels on each GPU; only one of the two runs a case at a time.
static bool spares_fit(const struct backend *b)
{
    for (int i = 0; i < b->gpu_count; i++)
        if (b->gpus[i].memory_bytes < SPARES_BYTES_MIN * b->ranks_per_device)
            return false;
    return b->gpu_count > 0;
}

static enum status gpus_look(const struct settings *config, struct wire_device *all, int *count,
                             struct error *error)
{
    const char *program = config->cuda_rank_program;
    const struct confinement confinement = {.user = config->rank_user, .uses_gpus = true};
    if (access(program, X_OK) != 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "there is no %s: this build has no CUDA backend, or the program is "
                         "elsewhere; name it with --cuda-rank-program",
                         program);
    return gpus_probe(program, &confinement, PROBE_LIMIT_MS, all, count, error);
}

static enum status choose_cuda(const struct settings *config, const struct wire_device *all,
                               int count, struct backend *b, struct error *error)
{
    strcpy(b->name, "cuda");
    b->program = config->cuda_rank_program;
    enum status status = gpus_take(&config->devices, all, count, b, error);
    b->device_count = b->gpu_count;
    b->ranks_per_device = config->ranks_per_gpu;
    return status;
}

// Default of --rank-filter: off for builds with a sanitizer, whose calls at the end of a process
// the filter would refuse; off with GPUs, because the system calls of the driver are not known.
static bool filters_fit(const struct confinement *c)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)c;
    return false;
#else
    return !c->uses_gpus && filter_is_there();
#endif
}

static enum status filters_choose(enum filter_choice choice, struct confinement *c,
                                  struct error *error)
{
    if (choice == FILTER_OFF || (choice == FILTER_AUTO && !filters_fit(c)))
        return STATUS_OK;
    // Network sockets are permitted with GPUs, for NCCL, and in guests, for frameworks.
    enum status status = filter_create(c->uses_gpus, &c->filter, error);
    return status == STATUS_OK ? filter_create(true, &c->guest_filter, error) : status;
}

// Refuses --rank-memory with GPUs: the driver maps the memory of all devices, and host memory
// shared with them, into each rank.
static enum status confinement_choose(const struct settings *config, struct backend *b,
                                      struct error *error)
{
    b->confinement = (struct confinement){.user = config->rank_user,
                                          .memory_bytes = config->rank_memory_bytes,
                                          .uses_gpus = b->gpu_count > 0};
    if (b->gpu_count > 0 && config->rank_memory_bytes > 0)
        return error_set(
            error, STATUS_FAILED_PRECONDITION,
            "--rank-memory does not work with the CUDA backend, because the GPU driver maps "
            "far more memory into each rank than it uses; limit cases with --memory, and all "
            "processes with MemoryMax= of the unit");
    enum status status = filters_choose(config->rank_filter, &b->confinement, error);
    if (status != STATUS_OK)
        return status;
    return spawn_try(&b->confinement, b->program, error);
}

enum status backend_choose(const struct settings *config, struct backend *backend,
                           struct error *error)
{
    struct wire_device all[DEVICES_MAX];
    struct error reason;
    int count = 0;
    enum status status = confine_check_rights(&config->rank_user, error);
    *backend = (struct backend){.gpu_count = 0};
    if (status != STATUS_OK)
        return status;
    if (config->backend != BACKEND_CPU && gpus_look(config, all, &count, &reason) == STATUS_OK)
        status = choose_cuda(config, all, count, backend, error);
    else if (config->backend == BACKEND_CUDA)
        status = error_set(error, STATUS_FAILED_PRECONDITION,
                           "--backend cuda is not available: %s; --backend cpu runs the same "
                           "cases",
                           reason.text);
    else
        status = choose_cpu(config, &reason, backend, error);
    if (status == STATUS_OK)
        status = confinement_choose(config, backend, error);
    if (status != STATUS_OK)
        return status;
    backend->spares =
        config->spares == SPARES_ON || (config->spares == SPARES_AUTO && spares_fit(backend));
    log_notice("backend name=%s devices=%d spares=%s rank_filter=%s reason=%s", backend->name,
               backend->device_count, backend->spares ? "on" : "off",
               backend->confinement.filter.count > 0 ? "on" : "off",
               log_quote(&(struct log_quoted){0}, config->backend != BACKEND_AUTO ? "configured"
                                                  : backend->gpu_count > 0        ? "GPUs are there"
                                                                                  : reason.text));
    return STATUS_OK;
}
