// SPDX-License-Identifier: Apache-2.0
// Builds the plan of a case with the algorithm of its comm.
#include "plan/builder.h"

enum status plan_create(const struct cp_case *c, int rank, struct plan **plan, struct error *error)
{
    struct builder *b = builder_create(c, rank);
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the plan of rank %d",
                         rank);
    switch (team_comm(c)) {
    case COMM_AUTO:
    case COMM_P2P:
        ring_build(b);
        break;
    case COMM_ALL_GATHER:
        gather_build(b);
        break;
    case COMM_A2A:
        ulysses_build(b);
        break;
    case COMM_A2A_P2P:
        hierarchical_build(b);
        break;
    }
    enum status status = builder_finish(b, plan, error);
    builder_destroy(b);
    return status;
}
