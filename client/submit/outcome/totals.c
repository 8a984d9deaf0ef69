// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/totals.h"

#include <stdio.h>

void totals_add(struct totals *totals, const struct outcome *outcome)
{
    totals->kinds[outcome->kind]++;
    totals->flaky += outcome->first != NULL;
    totals->wrong += outcome->was_wrong;
}

// Appends the flaky cases to the text, behind the good ones.
static size_t flaky_add(const struct totals *totals, char *text, size_t used)
{
    const size_t size = TOTALS_TEXT_MAX;
    if (totals->flaky)
        used += (size_t)snprintf(text + used, size - used, ", %d of them flaky", totals->flaky);
    if (totals->wrong)
        used += (size_t)snprintf(text + used, size - used, " (%d with a wrong result first)",
                                 totals->wrong);
    return used;
}

const char *totals_format(const struct totals *totals, char *text)
{
    static const struct {
        enum outcome_kind kind;
        const char *words;
    } parts[] = {{OUTCOME_PASS, "passed"},
                 {OUTCOME_FAIL, "failed"},
                 {OUTCOME_ERROR, "could not be run"},
                 {OUTCOME_UNVERIFIED, "run without verification"},
                 {OUTCOME_NOT_RUN, "not run"},
                 {OUTCOME_EXCLUDED, "excluded"}};
    const size_t size = TOTALS_TEXT_MAX; // more than the longest text
    size_t used = 0;
    text[0] = '\0';
    const enum outcome_kind good = totals->kinds[OUTCOME_PASS] ? OUTCOME_PASS : OUTCOME_UNVERIFIED;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (totals->kinds[parts[i].kind] == 0)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d %s", used ? ", " : "",
                                 totals->kinds[parts[i].kind], parts[i].words);
        if (parts[i].kind == good)
            used = flaky_add(totals, text, used);
    }
    return text;
}
