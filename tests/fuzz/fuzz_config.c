// SPDX-License-Identifier: Apache-2.0
// Any text as the daemon's settings file. The settings are within their ranges, and the same when
// they are read again; or the text is refused with a reason without control characters.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/limits.h"
#include "daemon/settings/settings.h"
#include "tests/fuzz/fuzz_target.h"

#define TEXT_MAX (64 * 1024)

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool is_text(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    return length > 0 && length < size;
}

static void require_config(const struct settings *c)
{
    require(is_text(c->socket, sizeof(c->socket)));
    require(is_text(c->rank_program, sizeof(c->rank_program)));
    require(is_text(c->cuda_rank_program, sizeof(c->cuda_rank_program)));
    require(c->backend >= BACKEND_AUTO && c->backend <= BACKEND_CUDA);
    require(c->devices.count >= 0 && c->devices.count <= DEVICES_MAX);
    require(!c->devices.named || __builtin_popcountll(c->devices.named) == c->devices.count);
    require(c->queue_max >= 1 && c->queue_max <= JOBS_MAX);
    require(c->user_queue_max >= 0 && c->user_queue_max <= JOBS_MAX);
    require(c->user_running_max >= 0 && c->user_running_max <= JOBS_MAX);
    require((c->user_time_ns > 0) == (c->user_window_ns > 0));
    require(c->timeout_max_ns >= 1 && c->timeout_max_ns <= TIMEOUT_MAX_NS);
    require(c->allowed.count >= 0 && c->allowed.count <= USER_LIST_MAX);
    for (int i = 0; i < c->allowed.count; i++)
        require(c->allowed.users[i] != UINT32_MAX);
    require(c->memory_bytes >= 0);
    require(c->log_level >= LOG_LEVEL_ERROR && c->log_level <= LOG_LEVEL_DEBUG);
}

static void require_refusal(enum status status, const struct error *error)
{
    require(status == STATUS_INVALID_ARGUMENT || status == STATUS_FAILED_PRECONDITION);
    require(error->status == status && is_text(error->text, sizeof(error->text)));
    for (const char *at = error->text; *at; at++) {
        require((unsigned char)*at >= ' ' && *at != 0x7f);
        require((unsigned char)*at != 0xc2 || (at[1] & 0xe0) != 0x80);
    }
}

// Writes the text to a file in memory. settings_read() opens it by its name.
static const char *file_write(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("settings", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    require(fd >= 0 && ftruncate(fd, 0) == 0);
    require(pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct settings first, second;
    const char *different[SETTINGS_FIXED];
    // settings_read() requires a rank program that exists.
    static char name[] = "cpattnd", program[] = "--rank-program=/proc/self/exe",
                option[] = "--config";
    char *arguments[] = {name, program, option, NULL, NULL};
    struct error error = {.status = STATUS_OK};
    fuzz_accepted = false;
    if (size > TEXT_MAX)
        return 0;
    arguments[3] = (char *)(uintptr_t)file_write(data, size);
    enum status status = settings_read(&first, 4, arguments, &error);
    if (status != STATUS_OK) {
        require_refusal(status, &error);
        return 0;
    }
    fuzz_accepted = true;
    require_config(&first);
    require(settings_reread(&first, &second, &error) == STATUS_OK);
    require_config(&second);
    require(settings_fixed_differences(&first, &second, different) == 0);
    require(first.user_queue_max == second.user_queue_max &&
            first.user_running_max == second.user_running_max &&
            first.user_time_ns == second.user_time_ns &&
            first.user_window_ns == second.user_window_ns &&
            first.timeout_max_ns == second.timeout_max_ns &&
            first.idle_timeout_ns == second.idle_timeout_ns &&
            first.memory_bytes == second.memory_bytes && first.log_level == second.log_level);
    return 0;
}
