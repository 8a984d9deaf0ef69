// SPDX-License-Identifier: Apache-2.0
#include "common/size.h"

#include <stdio.h>

const char *size_format(int64_t bytes, char text[SIZE_TEXT_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = bytes > 0 ? (double)bytes : 0;
    int unit = 0;
    for (; value >= 1023.5; unit++)
        value /= 1024;
    int decimals = unit == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text, SIZE_TEXT_MAX, "%.*f %s", decimals, value, units[unit]);
    return text;
}
