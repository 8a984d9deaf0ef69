// SPDX-License-Identifier: Apache-2.0
// The state of a verification on the device, for the files that implement it.
#ifndef CPATTN_JUDGE_CUDA_VERIFY_STATE_H
#define CPATTN_JUDGE_CUDA_VERIFY_STATE_H

#include "judge/cuda/compare_cuda.h"
#include "judge/cuda/padding_cuda.h"
#include "judge/cuda/reference_cuda.h"
#include "judge/cuda/verification.h"
#include "judge/tiles.h"
#include "judge/totals.h"
#include "plan/bias.h"

// Tensors that are compared row by row.
enum slot { SLOT_OUT, SLOT_LSE, SLOT_DQ, SLOT_DK, SLOT_DV, SLOTS };
#define SLOT_DBIAS       (SLOTS * COMPARE_CHUNKS) // number of the result of dbias
#define RESULTS          (SLOT_DBIAS + 1)
#define SLOTS_OF_QUERIES 3

// Statistics of some queries [heads][rows], in one piece of memory.
struct statistics {
    struct reference_stat *stats;
    struct reference_stat64 *stats64; // NULL unless the reference is fp64
    size_t bytes;
};

// Precision and extent of the reference and twin of a case.
struct extent {
    bool fp64;       // the reference
    double fraction; // of the tiles that are judged
    int64_t tiles[2], rows[2];
};

struct verify_cuda {
    struct verification_cuda v;
    const struct cp_case *c;
    struct extent extent;
    struct reference_cuda r;
    struct reference_rows rows[2];                // those that are judged
    struct reference_rows all_queries;            // of the rank; of a sample only
    int64_t chunk_rows[2];                        // of `rows` of the first chunk
    int kv_step;                                  // key heads whose inputs are in memory at a time
    struct reference_results expected[2];         // out, then dv; dq, then dk
    float *terms;                                 // of the rows of dq, then of dk
    float *max;                                   // of each query; NULL: not wanted
    struct statistics judged;                     // of the queries that are judged
    struct statistics ranks[WORLD_SIZE_MAX], all; // of all queries by rank, and in order
    double *dbias, *dbias_parts;
    float *dbias_twin, *dbias_twin_parts;
    float *bias_terms; // of the rows of dq; NULL unless dbias is there
    void *scratch;
    struct compare_result *results, *results_device;
    double *heads, *heads_device; // of each rank [TOTALS_NUMBERS][heads]
    float *max_logit, *dsink;     // copies of what is judged
    const struct padding_cuda *padding[SLOTS];
    struct tile *drawn;
    struct reference_tile *tiles[2], *all_tiles; // in the order of their rows; of `all_queries`
    struct reference_tile *sorted;               // sorted for the copy to the device
    struct reference_sequence *sequences;
    struct reference_piece *pieces;
    struct span *spans; // of other ranks
};

// Tensor and side of a slot.
struct slot_tensor {
    enum report_tensor name;
    enum shard_side side;
    const void *data;
    enum case_dtype dtype;
    int heads, dim;
    struct reference_results expected;
};

struct slot_tensor verify_slot(const struct verify_cuda *x, enum slot slot);

// True if the tensor of the slot is judged.
bool verify_slot_present(const struct verify_cuda *x, enum slot slot);

// The elements of dbias that are judged.
struct bias_share verify_bias_share(const struct verify_cuda *x);

static inline bool verify_is_sample(const struct verify_cuda *x)
{
    return x->extent.fraction < 1;
}

// The state in the host arena, with all its memory and the tiles.
struct verify_cuda *verify_take(const struct verification_cuda *v);

// The passes of reference and twin over the judged rows, for the heads whose inputs are in memory:
// first of the queries, then, with the statistics of all queries, of the keys.
void verify_out(const struct verify_cuda *x);
void verify_dq(const struct verify_cuda *x, const struct reference_dbias *dbias);
void verify_dkv(const struct verify_cuda *x);

#endif
