// SPDX-License-Identifier: Apache-2.0
#include "common/duration.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct unit {
    const char *name;
    double ns;
} units[] = {{"", 1e9},  {"ns", 1},   {"us", 1e3},  {"ms", 1e6},
             {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};

bool duration_parse(const char *text, uint64_t *ns)
{
    // Copies digits and points only: strtod() would also take spaces, signs, "inf" and hexadecimal.
    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits > 24 || !isdigit((unsigned char)text[0]))
        return false;
    char number[32], *end;
    memcpy(number, text, digits);
    number[digits] = '\0';
    double value = strtod(number, &end);
    if (*end != '\0')
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text + digits, units[i].name) != 0)
            continue;
        if (value * units[i].ns >= 9223372036854775807.0)
            return false;
        *ns = (uint64_t)(value * units[i].ns + 0.5);
        return true;
    }
    return false;
}

const char *duration_format(uint64_t ns, char *text, size_t size)
{
    double value = (double)ns;
    uint64_t seconds = (ns + 500000000) / 1000000000;
    if (ns < 1000)
        snprintf(text, size, "%" PRIu64 " ns", ns);
    else if (seconds >= 3600)
        snprintf(text, size, "%" PRIu64 " h %02" PRIu64 " m", seconds / 3600, seconds / 60 % 60);
    else if (seconds >= 100)
        snprintf(text, size, "%" PRIu64 " m %02" PRIu64 " s", seconds / 60, seconds % 60);
    else {
        const char *unit = value < 999.5e3 ? "us" : value < 999.5e6 ? "ms" : "s";
        value /= value < 999.5e3 ? 1e3 : value < 999.5e6 ? 1e6 : 1e9;
        snprintf(text, size, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit);
    }
    return text;
}

const char *duration_ask(uint64_t ns, char *text, size_t size)
{
    static const struct {
        const char *name;
        uint64_t tenth_ns, limit_ns;
    } scales[] = {{"us", 100, 1000000}, {"ms", 100000, 1000000000}, {"s", 100000000, UINT64_MAX}};
    int scale = 0, last = (int)(sizeof(scales) / sizeof(scales[0])) - 1;
    while (scale < last && ns >= scales[scale].limit_ns)
        scale++;
    uint64_t tenths = ns / scales[scale].tenth_ns, step = 1;
    tenths += ns % scales[scale].tenth_ns > 0;
    if (scale == 0 && tenths < 10)
        tenths = 10;
    while (tenths / step >= 100)
        step *= 10;
    tenths = (tenths / step + (tenths % step > 0)) * step;
    if (tenths % 10 > 0)
        snprintf(text, size, "%" PRIu64 ".%" PRIu64 "%s", tenths / 10, tenths % 10,
                 scales[scale].name);
    else
        snprintf(text, size, "%" PRIu64 "%s", tenths / 10, scales[scale].name);
    return text;
}
