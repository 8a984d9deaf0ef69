// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/pool_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/plural.h"
#include "daemon/process/proc.h"
#include "daemon/settings/guests.h"

int pool_text_device(const struct service_config *config, int host, int place)
{
    const struct wire_description *d = &config->description;
    return host == HOST_HERE && place < d->gpu_count ? d->gpus[place].index : place;
}

uint64_t pool_text_devices(const struct service_config *config, uint64_t hosts, uint64_t places)
{
    uint64_t devices = 0;
    int host = hosts ? __builtin_ctzll(hosts) : HOST_HERE;
    for (uint64_t left = places; left; left &= left - 1)
        devices |= UINT64_C(1) << pool_text_device(config, host, __builtin_ctzll(left));
    return devices;
}

// ---- the rank and its last output --------------------------------------------------------------

// Maximum number of characters shown of a guest's command.
#define COMMAND_TOLD 60
// Maximum number of stderr lines shown of a process, and of their bytes.
#define LINES_TOLD   3
#define LINES_BYTES  (ERROR_TEXT_MAX / 2)

void pool_text_guest(const struct crew *crew, char *text, size_t size)
{
    text[0] = '\0';
    if (crew && crew->guest)
        snprintf(text, size, " of guest %s", crew->guest->name);
}

// Writes the command of a guest, without the folder of its program: " (python3 my_ring.py)".
static void command_write(const struct guest *guest, char *text, size_t size)
{
    char *words[GUEST_WORDS_MAX + 1];
    size_t used = 0;
    text[0] = '\0';
    if (!guest)
        return;
    guest_words(guest, words);
    for (int i = 0; words[i] && used < size; i++) {
        const char *slash = i == 0 ? strrchr(words[i], '/') : NULL;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? " (" : " ",
                                 slash ? slash + 1 : words[i]);
    }
    for (char *at = text; *at; at++)
        *at = (char)(*at < ' ' || *at > '~' ? ' ' : *at);
    if (used > COMMAND_TOLD)
        snprintf(text + COMMAND_TOLD - 3, size - COMMAND_TOLD + 3, "...");
    snprintf(text + strlen(text), size - strlen(text), ")");
}

// Joins the last LINES_TOLD non-empty lines of a text. Modifies `from`.
static void lines_write(char *from, char *text, size_t size)
{
    const char *lines[LINES_TOLD] = {NULL};
    int count = 0;
    for (char *line; (line = strsep(&from, "\n"));) {
        line += strspn(line, " \t");
        if (line[0])
            lines[count++ % LINES_TOLD] = line;
    }
    size_t used = 0;
    text[0] = '\0';
    for (int i = count > LINES_TOLD ? count - LINES_TOLD : 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : " | ",
                                 lines[i % LINES_TOLD]);
}

void pool_text_wrote(const struct rank_process *r, char *text, size_t size)
{
    char tail[LINES_BYTES], lines[LINES_BYTES + 3 * LINES_TOLD];
    size_t length = bytering_tail(&r->stderr_text.ring, tail, sizeof(tail));
    char *begun = length < bytering_kept(&r->stderr_text.ring) ? strchr(tail, '\n') : NULL;
    lines_write(begun ? begun : tail, lines, sizeof(lines)); // without the rest of a cut line
    if (!lines[0])
        lines_write(tail, lines, sizeof(lines));
    snprintf(text, size, "%s%s", lines[0] ? "; it wrote: " : "", lines);
}

void pool_text_not_ready(const struct crew *crew, int rank, struct error *error)
{
    const struct rank_process *r = &crew->ranks[rank];
    char guest[IMPLEMENTATION_NAME_MAX + 16], command[GUEST_COMMAND_MAX], wrote[ERROR_TEXT_MAX];
    char end[RANK_END_TEXT_MAX];
    bool returned = crew->guest && r->end.kind == RANK_EXITED && r->end.number == 0;
    pool_text_guest(crew, guest, sizeof(guest));
    command_write(crew->guest, command, sizeof(command));
    pool_text_wrote(r, wrote, sizeof(wrote));
    error_set(error, STATUS_UNAVAILABLE, "rank %d of %d%s%s %s before it was ready%s%s%s%s", rank,
              crew->world_size, guest, command,
              r->end.kind == RANK_LIVES ? "failed" : rank_end_said(&r->end, end),
              r->failure.text[0] ? ": " : "", r->failure.text, wrote,
              returned
                  ? "; a guest calls cpattn.guest.serve() or cpattn_guest_main(), which do not "
                    "return"
                  : "");
}

void pool_text_late(const struct crew *crew, struct error *error)
{
    char guest[IMPLEMENTATION_NAME_MAX + 16], command[GUEST_COMMAND_MAX], wrote[ERROR_TEXT_MAX];
    const struct rank_process *late = NULL;
    for (int rank = crew->world_size - 1; rank >= 0; rank--) {
        const struct rank_process *r = &crew->ranks[rank];
        if (r->end.kind != RANK_LIVES || r->ending || r->failure.status != STATUS_OK)
            return;
        late = r->said_ready ? late : r;
    }
    if (!late)
        return;
    pool_text_guest(crew, guest, sizeof(guest));
    command_write(crew->guest, command, sizeof(command));
    pool_text_wrote(late, wrote, sizeof(wrote));
    error_set(error, STATUS_UNAVAILABLE, "rank %d of %d%s%s was not ready in time%s%s", late->rank,
              crew->world_size, guest, command, crew->guest ? " (start-timeout)" : "", wrote);
}

// Writes the name of a device: "GPU 3", "device 0", "device 1 of host node2".
static void device_name(const struct service_config *config, int host, int place, char *text,
                        size_t size)
{
    bool here = host == HOST_HERE;
    snprintf(text, size, "%s %d%s%s", here && config->description.gpu_count > 0 ? "GPU" : "device",
             pool_text_device(config, host, place), here ? "" : " of host ",
             here ? "" : config->hosts[host].name);
}

static const char *process_describe(struct crews *crews, int pool, uint32_t generation, int rank,
                                    char text[PROC_TEXT_MAX])
{
    const struct crew *crew = crews_get(crews, pool);
    bool known = crew->generation == generation && rank < crew->world_size;
    return known ? crew_describe_process(crew, rank, text) : proc_describe(0, text);
}

void pool_text_stuck(struct crews *crews, const struct service_config *config, int world_size,
                     const struct core_stuck *stuck, struct error *error)
{
    char device[32 + HOST_NAME_BYTES], process[PROC_TEXT_MAX];
    device_name(config, stuck->host, stuck->device, device, sizeof(device));
    process_describe(crews, stuck->pool, stuck->generation, stuck->rank, process);
    error_set(error, STATUS_UNAVAILABLE,
              "no pool of %d rank%s is available: rank %d of a pool was killed and does not "
              "end (%s), and %s is out of use until it does",
              world_size, plural(world_size), stuck->rank, process, device);
}

void pool_text_log_stuck(struct crews *crews, const struct service_config *config,
                         const struct action *stuck)
{
    char process[PROC_TEXT_MAX];
    process_describe(crews, stuck->pool, stuck->generation, stuck->rank, process);
    log_error("pool_stuck world=%d instance=%d generation=%" PRIu32 " devices=0x%" PRIx64
              " hosts=0x%" PRIx64 " rank=%d process=%s",
              stuck->world_size, stuck->instance, stuck->generation,
              pool_text_devices(config, stuck->hosts, stuck->devices), stuck->hosts, stuck->rank,
              log_quote(&(struct log_quoted){0}, process));
}

void pool_text_status(struct crews *crews, const struct service_config *config,
                      struct error (*start_errors)[WORLD_SIZE_MAX + 1], struct wire_pool *pools,
                      int count)
{
    for (int i = 0; i < count; i++) {
        struct wire_pool *pool = &pools[i];
        const char *text = start_errors[pool->guest][pool->world_size].text;
        if (text[0] && (pool->state == POOL_BACKOFF || pool->state == POOL_DOWN))
            snprintf(pool->last_failure, sizeof(pool->last_failure), "%s", text);
        if (pool->guest > 0)
            memcpy(pool->implementation, config->description.guests[pool->guest - 1].name,
                   sizeof(pool->implementation));
        pool->devices = pool_text_devices(config, pool->hosts, pool->devices);
        const struct crew *crew = pool->crew >= 0 ? crews_get(crews, pool->crew) : NULL;
        if (crew && crew_is_ready(crew))
            memcpy(pool->exchange, crew->exchange, sizeof(pool->exchange));
    }
}
