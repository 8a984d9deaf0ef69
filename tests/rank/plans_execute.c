// SPDX-License-Identifier: Apache-2.0
#include "tests/rank/plans_execute.h"

#include <string.h>

// The k-th nonempty region of an exchange to (from) a peer; NULL: none.
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

static void exchange(struct plan *const *plans, void *const *const *buffers, const int *at,
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

void plans_execute(struct plan *const *plans, void *const *const *buffers, int world_size,
                   plans_compute *compute, void *scene)
{
    int at[WORLD_SIZE_MAX] = {0};
    for (bool more = true; more;) {
        for (int rank = 0; rank < world_size; rank++)
            for (; at[rank] < plans[rank]->op_count; at[rank]++) {
                const struct op *op = &plans[rank]->ops[at[rank]];
                if (op->kind == OP_EXCHANGE)
                    break;
                compute(scene, rank, op);
            }
        more = at[0] < plans[0]->op_count;
        if (more)
            exchange(plans, buffers, at, world_size);
        for (int rank = 0; rank < world_size; rank++)
            at[rank]++;
    }
}
