// SPDX-License-Identifier: Apache-2.0
// Linear layers under tensor parallelism as a kind of job: the spec, and the shares of the ranks.
// Weights are [out][in], as in y = x w' + b.
//
// column: y = x w' + b. Each rank holds some of the out features: rows of w and b, columns of y.
//
// row: y = x w' + b. Each rank holds some of the in features: columns of w and x. The products of
// the ranks are summed, then b is added once.
//
// mlp: a column layer from in to hidden features, an activation, and a row layer from hidden to out
// features.
//
// The backward pass computes dx and the gradients of weights and biases from dy. With sequence
// parallelism each rank holds some of the tokens of x (column, mlp), of y (row, mlp) and of their
// gradients. Tokens are gathered before a column layer, and the sum of a row layer is scattered;
// likewise dy is gathered, and the sum dx is scattered. Without sequence parallelism these tensors
// are the same on all ranks.
//
// Features and tokens are divided in order and as evenly as possible: the first ranks have one
// more. If there are fewer than ranks, the last ranks have none.
#ifndef CPATTN_PLAN_LINEAR_H
#define CPATTN_PLAN_LINEAR_H

#include "plan/kind.h"
#include "plan/product.h"

enum linear_layer { LINEAR_COLUMN = 1, LINEAR_ROW, LINEAR_MLP, LINEAR_LAYERS };

#define LINEAR_SIZE_MAX       (INT64_C(1) << 22) // tokens and features
#define LINEAR_CHUNKS_MAX     64
#define LINEAR_ITERATIONS_MAX 10000

struct linear {
    int32_t world_size; // 1..WORLD_SIZE_MAX
    enum linear_layer layer;
    enum activation activation; // of an mlp; NONE in other layers
    enum case_dtype dtype;      // of all tensors; products and sums accumulate in fp32
    int64_t tokens, in_features, out_features; // 1..LINEAR_SIZE_MAX
    int64_t hidden;                            // of an mlp, 1..LINEAR_SIZE_MAX; 0 in other layers
    bool bias;
    bool sequence_parallel;
    bool training;  // also backward
    int32_t chunks; // pieces of a rank's tokens; one is sent while others are computed
    bool verify;
    int32_t iterations;    // consecutive runs; the time is their mean
    uint64_t seed;         // of the inputs
    uint64_t explore_seed; // 0: run in plan order; else in the legal order drawn from this seed
    bool operation_times;  // each rank reports when each operation of its last run ran
    char implementation[IMPLEMENTATION_NAME_MAX]; // the guest that runs it; "": the daemon's own
    int32_t nodes, ranks_per_node;                // placement, as in a case; 0: any
};

extern const struct job_kind job_kind_linear; // its spec is a struct linear

// Tensors of a rank, by index: inputs up to DY, then results. A column layer has the weights W1 and
// the bias B1, a row layer W2 and B2.
enum linear_tensor {
    LINEAR_X,
    LINEAR_W1,
    LINEAR_B1,
    LINEAR_W2,
    LINEAR_B2,
    LINEAR_DY,
    LINEAR_Y,
    LINEAR_DX,
    LINEAR_DW1,
    LINEAR_DB1,
    LINEAR_DW2,
    LINEAR_DB2,
    LINEAR_TENSORS
};

// ---- properties of a spec that check() admits ----

// Features before the column layer, between the layers, and behind the row layer; 0: the job has no
// such layer.
struct linear_sizes {
    int64_t in, middle, out;
    int gates; // rows of w1 per middle feature; SwiGLU: 2, all rows of g before all of u
};
struct linear_sizes linear_sizes(const struct linear *l);

// The share of a rank in `count` tokens or features.
struct linear_share {
    int64_t first, count;
};
struct linear_share linear_share(int64_t count, int rank, int ranks);

struct linear_shape {
    int64_t rows, columns; // 0: the job has no such tensor, or the rank has no elements of it
};
struct linear_shape linear_shape(const struct linear *l, int rank, enum linear_tensor tensor);
// The same, but a tensor with one empty side keeps its other side, as on other ranks.
struct linear_shape linear_outline(const struct linear *l, int rank, enum linear_tensor tensor);
int64_t linear_bytes(const struct linear *l, int rank, enum linear_tensor tensor);
const char *linear_tensor_name(const struct linear *l, enum linear_tensor tensor); // "y", "dw1"

// True if every rank holds the whole tensor, with equal values.
bool linear_is_replicated(const struct linear *l, enum linear_tensor tensor);

// FLOPs of the products of a rank.
double linear_flops(const struct linear *l, int rank);

// Number of judged tokens (features) among the `held` tokens (features) of a rank; spread evenly.
#define LINEAR_JUDGED_MAX 4096
int64_t linear_judged_tokens(const struct linear *l, int64_t held);
int64_t linear_judged_features(const struct linear *l, int64_t held);

// Upper bound of the fp64 numbers that a diagnosis keeps.
#define LINEAR_SAMPLE_MAX 30000000

// As job_kind.memory: tensors, scratch of the plan, scratch of products, and the judge.
enum status linear_memory(const struct linear *l, int64_t *rank_bytes,
                          struct error *error) MUST_CHECK;

struct plan;

// Builds the plan of a rank. Its non-empty tensors are buffers with the roles BUFFER_LINEAR + enum
// linear_tensor. RESOURCE_EXHAUSTED: out of memory.
enum status linear_plan(const struct linear *l, int rank, struct plan **plan,
                        struct error *error) MUST_CHECK;

// Maximum of product_wide_bytes() over the operations of the plan.
int64_t linear_wide_bytes(const struct plan *plan);

#endif
