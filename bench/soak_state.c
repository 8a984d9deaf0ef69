// SPDX-License-Identifier: Apache-2.0
#include "bench/soak_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "tests/support/generate.h"

struct soak soak;

int64_t soak_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

bool soak_chance(int per_mille)
{
    return generate_below(&soak.random, 1000) < per_mille;
}

void problem(const char *format, ...)
{
    va_list arguments;
    if (++soak.problems > 50)
        return;
    va_start(arguments, format);
    fprintf(stderr, "PROBLEM at %.1f s: ", (double)(soak_now_us() - soak.began_us) * 1e-6);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}
