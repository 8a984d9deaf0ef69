// SPDX-License-Identifier: Apache-2.0
#include "tests/kinds/random_jobs.h"

#include <string.h>

static uint64_t state = 1;

void random_jobs_seed(uint64_t seed)
{
    state = seed;
}

int random_below(int bound)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state >> 33) % (uint64_t)bound);
}

static int random_world(void)
{
    return 1 + random_below(random_below(4) ? 4 : 8);
}

struct collective random_collective(void)
{
    struct collective c;
    memset(&c, 0, sizeof(c));
    do {
        job_kind_collective.init(&c);
        c.operation = (enum collective_operation)(1 + random_below(COLLECTIVE_OPERATIONS - 1));
        c.reduction = (enum collective_reduction)(1 + random_below(REDUCTIONS - 1));
        c.dtype = (enum collective_element)(1 + random_below(ELEMENTS - 1));
        c.algorithm = (enum collective_algorithm)(1 + random_below(ALGORITHM_NCCL - 1));
        c.world_size = random_world();
        c.count = random_below(random_below(4) ? 300 : 20000);
        c.root = random_below(c.world_size);
        c.in_place = random_below(2);
        c.offset = random_below(4);
        c.seed = (uint64_t)random_below(1 << 30);
        c.specials = c.seed % 4 == 0;
    } while (job_kind_collective.check(&c, NULL) != STATUS_OK);
    return c;
}

struct linear random_linear(void)
{
    struct linear l;
    memset(&l, 0, sizeof(l));
    job_kind_linear.init(&l);
    l.layer = (enum linear_layer)(1 + random_below(LINEAR_LAYERS - 1));
    l.activation = (enum activation)(ACTIVATION_GELU + random_below(3));
    l.dtype = (enum case_dtype)(DTYPE_BF16 + random_below(3));
    l.world_size = random_world();
    l.tokens = 1 + random_below(200);
    l.in_features = 1 + random_below(90);
    l.hidden = 1 + random_below(90);
    l.out_features = 1 + random_below(90);
    l.bias = random_below(2);
    l.sequence_parallel = random_below(2);
    l.training = random_below(3) > 0;
    l.chunks = 1 + random_below(5);
    l.seed = (uint64_t)random_below(1 << 30);
    if (l.layer != LINEAR_MLP) { // only an MLP has an intermediate result
        l.hidden = 0;
        l.activation = ACTIVATION_NONE;
    }
    return l;
}
