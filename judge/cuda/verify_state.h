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
#define SLOT_DBIAS       (SLOTS * COMPARE_CHUNKS) // index of dbias in `results`
#define RESULTS          (SLOT_DBIAS + 1)
#define SLOTS_OF_QUERIES 3 // the first slots

// Statistics of some queries [heads][rows], both arrays in one piece of memory of `bytes` bytes.
struct statistics {
    struct reference_stat *stats;
    struct reference_stat64 *stats64; // NULL unless the reference is fp64
    size_t bytes;
};

// Precision and extent of the reference and twin of a case.
struct extent {
    bool fp64;                 // the reference is computed in fp64
    double fraction;           // share of the tiles that is judged; 1: all
    int64_t tiles[2], rows[2]; // judged, by enum shard_side
};

struct verify_cuda {
    struct verification_cuda v;
    const struct cp_case *c;
    struct extent extent;
    struct reference_cuda r;
    struct reference_rows rows[2];                // judged rows, by enum shard_side
    struct reference_rows all_queries;            // all the rank's queries; only with a sample
    int64_t chunk_rows[2];                        // judged rows of the first chunk
    int kv_step;                                  // key heads whose inputs are in memory at a time
    struct reference_results expected[2];         // [0]: out, then dv; [1]: dq, then dk
    float *terms;                                 // of the rows of dq, then of dk
    float *max;                                   // largest logit of each query; NULL: not wanted
    struct statistics judged;                     // of the judged queries
    struct statistics ranks[WORLD_SIZE_MAX], all; // of all queries: by rank; in the order of tokens
    double *dbias, *dbias_parts;                  // own sums; parts received from other ranks
    float *dbias_twin, *dbias_twin_parts;         // the twin's
    float *bias_terms;                            // of the rows of dq; NULL without dbias
    void *scratch;
    struct compare_result *results, *results_device;
    double *heads, *heads_device; // [ranks][TOTALS_NUMBERS][heads]
    float *max_logit, *dsink;     // host copies of the judged tensors
    const struct padding_cuda *padding[SLOTS];
    struct tile *drawn;                          // scratch for tables_tiles()
    struct reference_tile *tiles[2], *all_tiles; // in row order: judged; of all queries of a rank
    struct reference_tile *sorted;               // scratch: sorted for the copy to the device
    struct reference_sequence *sequences;
    struct reference_piece *pieces;
    struct span *spans; // scratch: spans of any rank
};

// The tensor of a slot: the rank's results, and the reference.
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

// Creates the state in the host arena: takes all its memory, and fills the tiles and sequences.
struct verify_cuda *verify_take(const struct verification_cuda *v);

// Passes of reference and twin over the judged rows, for the heads whose inputs are in memory: out
// and LSE, then dQ of the queries; dK and dV of the keys, from the statistics of all queries.
void verify_out(const struct verify_cuda *x);
void verify_dq(const struct verify_cuda *x, const struct reference_dbias *dbias);
void verify_dkv(const struct verify_cuda *x);

#endif
