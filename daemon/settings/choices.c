// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/choices.h"

#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/settings/values.h"

// With less memory hardly any case could run, since the libraries take most of it.
#define RANK_MEMORY_MIN (INT64_C(256) << 20)

int choice_find(const char *text, const char *const *names, int count)
{
    int found = -1;
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            found = i;
    return found;
}

bool backend_parse(const char *text, enum backend_choice *choice)
{
    static const char *const names[] = {
        [BACKEND_AUTO] = "auto", [BACKEND_CPU] = "cpu", [BACKEND_CUDA] = "cuda"};
    int found = choice_find(text, names, sizeof(names) / sizeof(names[0]));
    *choice = found < 0 ? *choice : (enum backend_choice)found;
    return found >= 0;
}

bool filter_parse(const char *text, enum filter_choice *choice)
{
    static const char *const names[] = {
        [FILTER_AUTO] = "auto", [FILTER_ON] = "on", [FILTER_OFF] = "off"};
    int found = choice_find(text, names, sizeof(names) / sizeof(names[0]));
    *choice = found < 0 ? *choice : (enum filter_choice)found;
    return found >= 0;
}

bool devices_parse(const char *text, struct device_choice *devices)
{
    int64_t count;
    uint64_t named = 0;
    if (integer_parse(text, 1, DEVICES_MAX, &count))
        *devices = (struct device_choice){.count = (int)count};
    else if (strpbrk(text, ",-") && indices_parse(text, &named))
        *devices = (struct device_choice){.count = __builtin_popcountll(named), .named = named};
    else
        return false;
    return true;
}

void devices_write(const struct device_choice *devices, char text[DEVICES_TEXT_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    if (devices->count > 0 && !devices->named)
        snprintf(text, DEVICES_TEXT_MAX, "%d", devices->count);
    for (int first = 0, last; first < DEVICES_MAX && used < DEVICES_TEXT_MAX; first = last + 1) {
        last = first;
        if (!(devices->named >> first & 1))
            continue;
        while (last + 1 < DEVICES_MAX && devices->named >> (last + 1) & 1)
            last++;
        // A single number would be a count.
        bool range = last > first || devices->count == 1;
        used += (size_t)snprintf(text + used, DEVICES_TEXT_MAX - used, range ? "%s%d-%d" : "%s%d",
                                 used > 0 ? "," : "", first, last);
    }
}

bool rank_memory_parse(const char *text, int64_t *bytes)
{
    int64_t value;
    if (!bytes_parse(text, &value) || value < RANK_MEMORY_MIN)
        return false;
    *bytes = value;
    return true;
}
