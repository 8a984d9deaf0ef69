// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/stderr_text.h"

#include <string.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"

static void suppressed_tell(struct stderr_text *t)
{
    if (t->suppressed_bytes > 0)
        log_info("rank_stderr_suppressed rank=%d world=%d generation=%u bytes=%zu", t->rank,
                 t->world_size, t->generation, t->suppressed_bytes);
    t->suppressed_bytes = 0;
}

static void line_pass_on(struct stderr_text *t)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - t->second_ns >= NS_PER_S) {
        suppressed_tell(t);
        t->second_ns = now_ns;
        t->logged_bytes = 0;
    }
    if (t->logged_bytes + t->line_bytes > STDERR_LOG_BYTES_PER_S) {
        t->suppressed_bytes += t->line_bytes;
    } else if (t->line_bytes > 0) {
        t->line[t->line_bytes] = '\0';
        t->logged_bytes += t->line_bytes;
        log_info("rank_stderr rank=%d world=%d generation=%u text=%s", t->rank, t->world_size,
                 t->generation, log_quote(&(struct log_quoted){0}, t->line));
    }
    t->line_bytes = 0;
}

static void lines_collect(struct stderr_text *t, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n' || t->line_bytes == sizeof(t->line) - 1)
            line_pass_on(t);
        if (data[i] != '\n' && data[i] != '\0')
            t->line[t->line_bytes++] = data[i];
    }
}

enum status stderr_text_init(struct stderr_text *t, int rank, int world_size, uint32_t generation,
                             struct error *error)
{
    memset(t, 0, sizeof(*t));
    t->rank = rank;
    t->world_size = world_size;
    t->generation = generation;
    if (bytering_init(&t->ring, STDERR_RING_BYTES) != STATUS_OK)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the stderr of rank %d",
                         rank);
    return STATUS_OK;
}

void stderr_text_add(struct stderr_text *t, const void *data, size_t size)
{
    bytering_write(&t->ring, data, size);
    lines_collect(t, data, size);
}

void stderr_text_end(struct stderr_text *t)
{
    line_pass_on(t);
    suppressed_tell(t);
}

void stderr_text_fini(struct stderr_text *t)
{
    bytering_fini(&t->ring);
}
