// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/pool_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/io/proc.h"

uint64_t pool_words_devices(const struct wire_description *d, uint64_t places)
{
    uint64_t gpus = 0;
    for (int place = 0; place < d->gpu_count; place++)
        if (places >> place & 1)
            gpus |= UINT64_C(1) << d->gpus[place].index;
    return d->gpu_count > 0 ? gpus : places;
}

static const char *last_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n')
        text[--length] = '\0';
    const char *newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

void pool_words_not_ready(const struct crew *crew, int rank, struct error *error)
{
    const struct rank_process *r = &crew->ranks[rank];
    char tail[ERROR_TEXT_MAX / 2];
    bytering_tail(&r->stderr_pipe.ring, tail, sizeof(tail));
    const char *line = last_line(tail), *fate = r->fate[0] ? r->fate : "failed";
    error_set(error, STATUS_UNAVAILABLE, "rank %d of %d %s%s before it was ready%s%s%s%s", rank,
              crew->world_size, strncmp(fate, "killed", 6) == 0 ? "was " : "", fate,
              r->failure.text[0] ? ": " : "", r->failure.text, line[0] ? "; it wrote: " : "", line);
}

// "GPU 3", "device 0"
static void device_name(const struct wire_description *d, int device, char *text, size_t size)
{
    bool gpu = device < d->gpu_count;
    snprintf(text, size, "%s %d", gpu ? "GPU" : "device", gpu ? d->gpus[device].index : device);
}

static const char *process_describe(struct crews *crews, int pool, uint32_t generation, int rank,
                                    char text[PROC_TEXT_MAX])
{
    const struct crew *crew = crews_get(crews, pool);
    bool known = crew->generation == generation && rank < crew->world_size;
    return proc_describe(known ? crew->ranks[rank].pid : 0, text);
}

void pool_words_stuck(struct crews *crews, const struct wire_description *d, int world_size,
                      const struct core_stuck *stuck, struct error *error)
{
    char device[32], process[PROC_TEXT_MAX];
    device_name(d, stuck->device, device, sizeof(device));
    process_describe(crews, stuck->pool, stuck->generation, stuck->rank, process);
    error_set(error, STATUS_UNAVAILABLE,
              "no pool of %d ranks can be had: rank %d of a pool was killed and does not end (%s), "
              "and %s is not used until it does",
              world_size, stuck->rank, process, device);
}

void pool_words_log_stuck(struct crews *crews, const struct wire_description *d,
                          const struct action *stuck)
{
    char process[PROC_TEXT_MAX];
    process_describe(crews, stuck->pool, stuck->generation, stuck->rank, process);
    log_error("pool_stuck world=%d instance=%d generation=%" PRIu32 " devices=0x%" PRIx64
              " rank=%d process=%s",
              stuck->world_size, stuck->instance, stuck->generation,
              pool_words_devices(d, stuck->devices), stuck->rank,
              log_quote(&(struct log_quoted){0}, process));
}

void pool_words_status(const struct wire_description *d,
                       struct error (*start_errors)[WORLD_SIZE_MAX + 1], struct wire_pool *pools,
                       int count)
{
    for (int i = 0; i < count; i++) {
        struct wire_pool *pool = &pools[i];
        const char *text = start_errors[pool->guest][pool->world_size].text;
        if (text[0] && (pool->state == POOL_BACKOFF || pool->state == POOL_DOWN))
            snprintf(pool->last_failure, sizeof(pool->last_failure), "%s", text);
        if (pool->guest > 0)
            memcpy(pool->implementation, d->guests[pool->guest - 1].name,
                   sizeof(pool->implementation));
        pool->devices = pool_words_devices(d, pool->devices);
    }
}
