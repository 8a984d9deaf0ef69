// SPDX-License-Identifier: Apache-2.0
// Hierarchical all-to-all and ring (a2a+p2p): teams of ranks exchange heads among
// themselves. Then ranks with the same place in their teams pass keys and values round a ring.
#include "plan/deal.h"
#include "plan/ring.h"

void hierarchical_build(struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    struct tensors t;
    struct ring ring;
    struct deal *d = builder_alloc(b, 1, sizeof *d);
    tensors_init(&t, b);
    if (!d || !deal_init(d, b, &t, team_of(builder_rank(b), team_size(c)), 0, 1))
        return;
    ring_init(&ring, &d->part, d->kv);
    builder_step(b, PHASE_FORWARD, 0);
    tensors_begin(&t, b, PHASE_FORWARD);
    deal_forward_in(d);
    ring_forward(&ring);
    deal_forward_out(d);
    tensors_reduce(&t, b, PHASE_FORWARD);
    if (!c->training)
        return;
    builder_step(b, PHASE_BACKWARD, 0);
    tensors_begin(&t, b, PHASE_BACKWARD);
    struct pair sum = deal_sum_begin(b, &t, d->part.team);
    deal_backward_in(d);
    deal_backward_out(d, ring_backward(&ring), sum);
    deal_sum_end(b, &t, sum);
    tensors_reduce(&t, b, PHASE_BACKWARD);
}
