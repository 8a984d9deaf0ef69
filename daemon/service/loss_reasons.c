// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/loss_reasons.h"

#include <stdio.h>
#include <string.h>

static int entry_find(const struct loss_reasons *l, uint64_t case_hash)
{
    for (int i = 0; i < LOSS_REASONS_MAX; i++) {
        if (l->entries[i].text[0] && l->entries[i].case_hash == case_hash)
            return i;
    }
    return -1;
}

void loss_reasons_note(struct loss_reasons *l, uint64_t case_hash, const char *text)
{
    int at = entry_find(l, case_hash);
    if (at < 0) {
        at = l->next;
        l->next = (at + 1) % LOSS_REASONS_MAX;
    }
    struct loss *loss = &l->entries[at];
    loss->case_hash = case_hash;
    snprintf(loss->text, sizeof(loss->text), "%s", text);
    char *end = strstr(loss->text, "; the pool is being restarted");
    if (end)
        *end = '\0';
}

const char *loss_reasons_find(const struct loss_reasons *l, uint64_t case_hash)
{
    int at = entry_find(l, case_hash);
    return at < 0 ? "" : l->entries[at].text;
}
