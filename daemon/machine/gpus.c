// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/gpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "daemon/process/probe.h"

// ---- the list ----------------------------------------------------------------------------------

static enum status line_parse(const char *line, struct wire_device *device, struct error *error)
{
    int64_t mebibytes;
    int end = 0;
    *device = (struct wire_device){0};
    int found = sscanf(line, "device %" SCNd32 " %15s %" SCNd64 " MiB %n", &device->index,
                       device->arch, &mebibytes, &end);
    if (found != 3 || end == 0 || !line[end] || device->index < 0 || device->index >= DEVICES_MAX ||
        mebibytes < 1 || mebibytes > INT64_MAX >> 20)
        return error_set(error, STATUS_DATA_LOSS,
                         "'%.80s' is no device such as \"device 0 sm_90 143771 MiB NVIDIA H200\"",
                         line);
    device->memory_bytes = mebibytes << 20;
    snprintf(device->name, sizeof(device->name), "%s", line + end);
    probe_clean(device->name);
    probe_clean(device->arch);
    return STATUS_OK;
}

static enum status device_add(const struct wire_device *device, struct wire_device *devices,
                              int *count, struct error *error)
{
    for (int i = 0; i < *count; i++)
        if (devices[i].index == device->index)
            return error_set(error, STATUS_DATA_LOSS, "device %d is named twice", device->index);
    if (*count == DEVICES_MAX)
        return error_set(error, STATUS_DATA_LOSS, "more than %d devices are named", DEVICES_MAX);
    devices[(*count)++] = *device;
    return STATUS_OK;
}

enum status gpus_parse(char *text, struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error)
{
    enum status status = STATUS_OK;
    char *rest;
    *count = 0;
    for (char *line = strtok_r(text, "\n", &rest); line && status == STATUS_OK;
         line = strtok_r(NULL, "\n", &rest)) {
        struct wire_device device;
        if (strncmp(line, "device ", 7) != 0)
            continue;
        status = line_parse(line, &device, error);
        if (status == STATUS_OK)
            status = device_add(&device, devices, count, error);
    }
    return status;
}

// ---- the program -------------------------------------------------------------------------------

static enum status probe_judge(const char *program, struct probe *p,
                               struct wire_device devices[DEVICES_MAX], int *count,
                               struct error *error)
{
    struct error wrong;
    if (!p->in_time)
        return error_set(error, STATUS_UNAVAILABLE, "%s --probe did not end in time", program);
    if (WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0) {
        if (gpus_parse(p->out, devices, count, &wrong) != STATUS_OK)
            return error_set(error, STATUS_UNAVAILABLE, "%s --probe: %s", program, wrong.text);
        if (*count > 0)
            return STATUS_OK;
    }
    if (WIFSIGNALED(p->status))
        return error_set(error, STATUS_UNAVAILABLE, "%s --probe was killed by signal %d", program,
                         WTERMSIG(p->status));
    return error_set(error, STATUS_UNAVAILABLE, "%s",
                     p->err[0] ? probe_line(p->err) : "there is no usable GPU");
}

enum status gpus_probe(const char *program, const struct confinement *confinement, int limit_ms,
                       struct wire_device devices[DEVICES_MAX], int *count, struct error *error)
{
    char name[] = "cpattn-rank-cuda", option[] = "--probe";
    char *const arguments[] = {name, option, NULL};
    struct probe p;
    *count = 0;
    enum status status = probe_program(program, arguments, confinement, limit_ms, &p, error);
    return status == STATUS_OK ? probe_judge(program, &p, devices, count, error) : status;
}
