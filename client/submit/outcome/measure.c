// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/measure.h"

#include "plan/cost.h"

const char *measure_part_name(enum measure_part part)
{
    static const char *const names[PARTS] = {"queue",     "start",   "inputs", "run",
                                             "reference", "compare", "rest"};
    return names[part];
}

static void take_longest(uint64_t *longest_ns, uint64_t ns)
{
    if (ns > *longest_ns)
        *longest_ns = ns;
}

void measure_parts(const struct cpattn_result *result, uint64_t parts_ns[PARTS])
{
    const struct cpattn_rank *rank;
    uint64_t known_ns = 0;
    for (int i = 0; i < PARTS; i++)
        parts_ns[i] = 0;
    parts_ns[PART_QUEUE] = result->queue_ns;
    parts_ns[PART_START] = result->start_ns;
    for (int r = 0; (rank = cpattn_result_rank(result, r)); r++) {
        take_longest(&parts_ns[PART_INPUTS], rank->inputs_ns);
        take_longest(&parts_ns[PART_RUN], rank->forward_ns + rank->backward_ns);
        take_longest(&parts_ns[PART_REFERENCE], rank->reference_ns);
        take_longest(&parts_ns[PART_COMPARE], rank->compare_ns);
    }
    for (int i = 0; i < PART_REST; i++)
        known_ns += parts_ns[i];
    // The longest times may be of different ranks, and overlap.
    parts_ns[PART_REST] = result->total_ns > known_ns ? result->total_ns - known_ns : 0;
}

static double rate(double flops, uint64_t ns)
{
    return ns > 0 ? flops / ((double)ns * 1e-9) : 0;
}

struct measure_rates measure_rates(const struct cp_case *c, const struct cpattn_rank *rank)
{
    double forward = cost_forward(c, 1), backward = c->training ? cost_backward(c, 1) : 0;
    double share = forward / (forward + backward);
    return (struct measure_rates){
        .forward = rate(rank->flops * share, rank->forward_ns),
        .backward = rate(rank->flops * (1 - share), rank->backward_ns),
        .both = rate(rank->flops, rank->forward_ns + rank->backward_ns),
    };
}
