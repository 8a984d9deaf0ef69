// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/totals.h"

#include <stdio.h>

void totals_add(struct totals *totals, const struct outcome *outcome)
{
    totals->kinds[outcome->kind]++;
    totals->flaky += outcome->first != NULL;
    totals->wrong += outcome->was_wrong;
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
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (totals->kinds[parts[i].kind])
            used += (size_t)snprintf(text + used, size - used, "%s%d %s", used ? ", " : "",
                                     totals->kinds[parts[i].kind], parts[i].words);
    if (totals->flaky)
        used += (size_t)snprintf(text + used, size - used, ", %d of them flaky", totals->flaky);
    if (totals->wrong)
        snprintf(text + used, size - used, " (%d with a wrong result first)", totals->wrong);
    return text;
}
