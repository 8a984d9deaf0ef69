// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/duration.h"
#include "common/limits.h"

#define WINDOW_MAX_NS (UINT64_C(720) * 3600 * 1000000000)

bool integer_parse(const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    if (end == text || *end || errno != 0 || number < min || number > max)
        return false;
    *value = number;
    return true;
}

bool int_parse(const char *text, int min, int max, int *value)
{
    int64_t number;
    if (!integer_parse(text, min, max, &number))
        return false;
    *value = (int)number;
    return true;
}

bool path_parse(char path[PATH_MAX], const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length >= PATH_MAX)
        return false;
    memcpy(path, text, length + 1);
    return true;
}

bool timeout_parse(const char *text, uint64_t max_ns, uint64_t *timeout_ns)
{
    uint64_t time_ns;
    if (!duration_parse(text, &time_ns) || time_ns == 0 || time_ns > max_ns)
        return false;
    *timeout_ns = time_ns;
    return true;
}

bool bytes_parse(const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    if (end == text || errno != 0 || number < 1)
        return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit && (strcmp(end + 1, "") == 0 || strcmp(end + 1, "iB") == 0)) {
        if (__builtin_mul_overflow(number, INT64_C(1) << (10 * (unit - units + 1)), &number))
            return false;
    } else if (*end) {
        return false;
    }
    *bytes = number;
    return true;
}

// Parses a number of up to three digits below DEVICES_MAX and moves *text behind it.
static bool index_take(const char **text, int *index)
{
    const char *at = *text;
    int value = 0;
    while (*at >= '0' && *at <= '9' && at - *text < 3)
        value = 10 * value + *at++ - '0';
    bool good = at > *text && value < DEVICES_MAX;
    *text = at;
    *index = value;
    return good;
}

bool indices_parse(const char *text, uint64_t *named)
{
    uint64_t bits = 0;
    for (int first, last;;) {
        if (!index_take(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !index_take(&text, &last)))
            return false;
        for (int i = first; i <= last; i++) {
            if (bits >> i & 1)
                return false;
            bits |= UINT64_C(1) << i;
        }
        if (last < first || (*text != ',' && *text))
            return false;
        if (!*text++)
            break;
    }
    *named = bits;
    return true;
}

bool time_in_window_parse(const char *text, uint64_t *time_ns, uint64_t *window_ns)
{
    char first[DURATION_TEXT_MAX];
    const char *slash = strchr(text, '/');
    uint64_t time, window;
    if (!slash || (size_t)(slash - text) >= sizeof(first))
        return false;
    memcpy(first, text, (size_t)(slash - text));
    first[slash - text] = '\0';
    if (!duration_parse(first, &time) || !duration_parse(slash + 1, &window) || time == 0 ||
        window == 0 || window > WINDOW_MAX_NS)
        return false;
    *time_ns = time;
    *window_ns = window;
    return true;
}
