// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tag of the exchange on the control transport. Tags of cases are larger: they have the job number,
// from 1 on, in the bits from 24.
#define TAG_DEVICES 2

// UUIDs of GPUs are 40 characters long.
#define NAMES_BYTES (64 * DEVICES_MAX)

// Exchanges device numbers with every peer. Sets used[] for the pool's devices on this host, and
// ranks and before of *place.
static enum status devices_learn(struct transport *control, int device, bool used[DEVICES_MAX],
                                 struct device_place *place, struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    unsigned char mine = (unsigned char)device, theirs[WORLD_SIZE_MAX];
    int count = 0, done = 0;
    theirs[control->rank] = mine;
    for (int peer = 0; peer < control->world_size; peer++)
        if (peer != control->rank)
            messages[count++] = (struct message){peer, &mine, 1, &theirs[peer], 1};
    enum status status = control->ops->start(control, TAG_DEVICES, messages, count, error);
    while (status == STATUS_OK && !done)
        status = control->ops->progress(control, -1, &done, error);
    for (int rank = 0; rank < control->world_size && status == STATUS_OK; rank++) {
        if (control->far >> rank & 1)
            continue;
        bool same = theirs[rank] == mine;
        used[theirs[rank] % DEVICES_MAX] = true;
        place->ranks += same;
        place->before += same && rank < control->rank;
    }
    return status;
}

// Finds name number `index` (from 0) of a list with commas, and its length; NULL: the list is
// shorter.
static const char *name_find(const char *list, int index, size_t *length)
{
    for (; index > 0 && list; index--) {
        list = strchr(list, ',');
        list += list != NULL;
    }
    *length = list ? strcspn(list, ",") : 0;
    return *length > 0 ? list : NULL;
}

enum status device_names(const char *visible, const bool used[DEVICES_MAX], char *names,
                         size_t size, struct error *error)
{
    size_t at = 0;
    for (int i = 0; i < DEVICES_MAX; i++) {
        char number[12];
        size_t length = (size_t)snprintf(number, sizeof(number), "%d", i);
        if (!used[i])
            continue;
        const char *name = visible ? name_find(visible, i, &length) : number;
        if (!name)
            return error_set(error, STATUS_UNAVAILABLE,
                             "CUDA_VISIBLE_DEVICES is \"%.200s\" and has no device %d", visible, i);
        int written =
            snprintf(names + at, size - at, "%s%.*s", at > 0 ? "," : "", (int)length, name);
        if (written < 0 || (size_t)written >= size - at)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "CUDA_VISIBLE_DEVICES has names that are too long");
        at += (size_t)written;
    }
    return STATUS_OK;
}

enum status device_choose(struct transport *control, int device, struct device_place *place,
                          struct error *error)
{
    bool used[DEVICES_MAX] = {false};
    char names[NAMES_BYTES] = "";
    *place = (struct device_place){0};
    enum status status = devices_learn(control, device, used, place, error);
    if (status == STATUS_OK)
        status = device_names(getenv("CUDA_VISIBLE_DEVICES"), used, names, sizeof(names), error);
    if (status != STATUS_OK)
        return status;
    if (setenv("CUDA_VISIBLE_DEVICES", names, 1) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the environment");
    for (int i = 0; i < device; i++)
        place->index += used[i];
    return STATUS_OK;
}
