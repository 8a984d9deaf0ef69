// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/changes.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bool changes_has_other_bits(const struct record_entry *now, const struct record_entry *then)
{
    return now->digest[0] && then->digest[0] && strcmp(now->digest, then->digest) != 0;
}

bool changes_is_worse(const struct record_entry *now, const struct record_entry *then)
{
    return outcome_is_good(&then->outcome) && !outcome_is_good(&now->outcome) &&
           now->outcome.kind != OUTCOME_EXCLUDED;
}

static void add_pair(struct changes *c, const struct record_entry *now,
                     const struct record_entry *then)
{
    bool same = now->outcome.kind == then->outcome.kind;
    c->same += same;
    c->changed += !same;
    c->worse += changes_is_worse(now, then);
    c->digests += changes_has_other_bits(now, then);
    if (same && now->outcome.kind == OUTCOME_PASS && now->outcome.run_ns && then->outcome.run_ns)
        c->ratios[c->timed++] = (double)now->outcome.run_ns / (double)then->outcome.run_ns;
}

enum status changes_init(struct changes *changes, const struct record *run,
                         const struct record *earlier)
{
    *changes = (struct changes){.ratios = calloc((size_t)run->count + 1, sizeof(double))};
    if (!changes->ratios)
        return STATUS_RESOURCE_EXHAUSTED;
    for (int i = 0; i < run->count; i++) {
        const struct record_entry *then = record_find(earlier, run->entries[i].id);
        changes->fresh += !then;
        if (then)
            add_pair(changes, &run->entries[i], then);
    }
    for (int i = 0; i < earlier->count; i++)
        changes->gone += !record_find(run, earlier->entries[i].id);
    qsort(changes->ratios, (size_t)changes->timed, sizeof(*changes->ratios), by_value);
    return STATUS_OK;
}

void changes_fini(struct changes *changes)
{
    free(changes->ratios);
    *changes = (struct changes){0};
}
