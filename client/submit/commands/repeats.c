// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/repeats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/duration.h"
#include "common/plural.h"

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void repeats_print(uint64_t *run_ns, int count, int asked, const uint64_t *digest)
{
    char least[DURATION_TEXT_MAX], median[DURATION_TEXT_MAX], most[DURATION_TEXT_MAX],
        same[40] = "";
    if (digest)
        snprintf(same, sizeof(same), ", all of digest %016" PRIx64, *digest);
    qsort(run_ns, (size_t)count, sizeof(*run_ns), compare_times);
    printf("\n%d run%s%s%s; least %s, median %s, most %s\n", count, plural(count),
           count < asked ? " before the interrupt" : "", same,
           duration_format(run_ns[0], least, sizeof(least)),
           duration_format(run_ns[count / 2], median, sizeof(median)),
           duration_format(run_ns[count - 1], most, sizeof(most)));
}
