// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *scaled(double value, const char *const *units, int count, double thousand,
                          char text[UNITS_TEXT_MAX])
{
    int unit = 0;
    if (value == 0)
        return strcpy(text, "0");
    for (; value >= thousand * 0.9995 && unit + 1 < count; unit++)
        value /= thousand;
    snprintf(text, UNITS_TEXT_MAX, value < 999.5 ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *units_time(double seconds, char text[UNITS_TEXT_MAX])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(seconds * 1e9, units, 4, 1000, text);
}

const char *units_bytes(int64_t bytes, char text[UNITS_TEXT_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled((double)bytes, units, 5, 1024, text);
}

const char *units_flops(double flops, char text[UNITS_TEXT_MAX])
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    return scaled(flops, units, 6, 1000, text);
}

double units_step(double all)
{
    double step = pow(10, floor(log10(all / 8)));
    double times = all / 8 / step;
    return step * (times > 7 ? 10 : times > 3 ? 5 : times > 1.4 ? 2 : 1);
}
