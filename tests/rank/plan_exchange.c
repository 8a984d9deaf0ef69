// SPDX-License-Identifier: Apache-2.0
#include "tests/rank/plan_exchange.h"

#include <string.h>

// The k-th region of an exchange that goes to (comes from) a peer and is not empty; NULL: none.
static const struct region *region_find(const struct plan *plan, const struct op *op, int peer,
                                        bool send, int k)
{
    for (int i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        const struct region *r = send ? &t->send : &t->receive;
        if (t->peer == peer && r->bytes > 0 && k-- == 0)
            return r;
    }
    return NULL;
}

void plan_exchange(struct plan *const *plans, void *const *const *buffers, const int *at,
                   int world_size)
{
    for (int from = 0; from < world_size; from++)
        for (int to = 0; to < world_size; to++)
            for (int k = 0;; k++) {
                const struct op *out = &plans[from]->ops[at[from]], *in = &plans[to]->ops[at[to]];
                const struct region *send = region_find(plans[from], out, to, true, k);
                const struct region *receive = region_find(plans[to], in, from, false, k);
                if (!send || !receive)
                    break;
                memcpy((char *)buffers[to][receive->buffer] + receive->offset,
                       (char *)buffers[from][send->buffer] + send->offset,
                       (size_t)(send->bytes < receive->bytes ? send->bytes : receive->bytes));
            }
}
