// SPDX-License-Identifier: Apache-2.0
// A case with the results of all its ranks, right but for small errors, from the CPU's reference.
#ifndef CPATTN_TESTS_CUDA_VERIFY_SAMPLE_H
#define CPATTN_TESTS_CUDA_VERIFY_SAMPLE_H

#include "common/report.h"
#include "plan/shard.h"

#define SAMPLE_WORLD_MAX 4

// Tensors that a rank delivers.
enum { OUT, LSE, DQ, DK, DV, DBIAS, DSINK, MAX_LOGIT, TENSORS };

struct rank {
    int number;
    struct sample *sample;
    void *host[TENSORS];
    size_t bytes[TENSORS];
    struct span *spans[2];
    int span_count[2];
    double *dbias; // sum over the rank's own queries, in its own layout; NULL: none
    struct rank_report report;
};

struct sample {
    struct cp_case c;
    int64_t tokens[2], *first[2]; // by side: number of tokens; of those before each sequence
    // The reference, [heads][tokens][dim]. sums [3][heads]: largest logit, dsink, squares of the
    // terms of dsink.
    double *out, *lse, *delta, *dq, *dk, *dv, *sums;
    struct rank ranks[SAMPLE_WORLD_MAX];
};

// Computes all results. They have rounding errors, and random errors far below every limit.
void sample_init(struct sample *s, const struct cp_case *c);
void sample_fini(struct sample *s);

// Ends the program unless the status is OK.
void sample_check(enum status status, const struct error *error);

#endif
