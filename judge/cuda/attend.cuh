// SPDX-License-Identifier: Apache-2.0
// One pair of query and key for the references on the device: its visibility by the definition of
// the mask, and its logit in fp32.
#ifndef CPATTN_JUDGE_CUDA_ATTEND_CUH
#define CPATTN_JUDGE_CUDA_ATTEND_CUH

#include "judge/cuda/element.cuh"
#include "judge/cuda/reference_cuda.h"

extern "C" {
#include "judge/rules.h"
}

// Finite bound of an unbounded window: larger than any distance of two tokens, and the sum of two
// such bounds fits an int.
#define DISTANCE_MAX (1 << 26)

struct bias_source {
    struct input_draw draw;
    enum case_dtype dtype;
    bool present;
    const void *given;                       // the tensor of the case's source; NULL: drawn
    int64_t batch_step, head_step, row_step; // strides in elements; 0: shared
};

struct attend_case {
    const reference_sequence *sequences;
    bool bottom_right;
    int left, right;          // window; DISTANCE_MAX: unbounded
    float softcap, cap_error; // cap_error: rules_cap_error()
    bias_source bias;
    int64_t seqlen_kv;
};

// The tile and head of a thread block.
struct attend_place {
    reference_tile tile;
    int queries, keys;    // lengths of the sequence
    int shift;            // query i is aligned with key i + shift
    int head, local_head; // query head of the case; head of the rows among those in memory
    int row_end;          // position after the tile's last row
};

static inline int distance_clamped(int64_t distance)
{
    return distance == WINDOW_UNBOUNDED || distance > DISTANCE_MAX ? DISTANCE_MAX : (int)distance;
}

static inline bias_source bias_source_of(const struct reference_cuda *r)
{
    const struct cp_case *c = r->c;
    bias_source bias = {};
    if (c->bias == BIAS_NONE)
        return bias;
    struct bias_dims dims = input_bias_dims(c);
    bias.present = true;
    bias.given = r->given_bias;
    bias.draw = input_draw_of(c, INPUT_BIAS);
    bias.dtype = c->dtype;
    bias.row_step = dims.rows > 1 ? c->seqlen_kv : 0;
    bias.head_step = dims.heads > 1 ? dims.rows * c->seqlen_kv : 0;
    bias.batch_step = dims.batch > 1 ? dims.heads * dims.rows * c->seqlen_kv : 0;
    return bias;
}

static inline attend_case attend_case_of(const struct reference_cuda *r)
{
    const struct cp_case *c = r->c;
    attend_case a = {};
    a.sequences = r->sequences;
    bool causal = c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
    a.bottom_right = c->mask == MASK_CAUSAL_BOTTOM_RIGHT || c->mask == MASK_NONE_BOTTOM_RIGHT;
    a.left = distance_clamped(c->window_left);
    a.right = causal ? 0 : distance_clamped(c->window_right);
    a.softcap = (float)c->softcap;
    a.cap_error = rules_cap_error(c);
    a.bias = bias_source_of(r);
    a.seqlen_kv = c->seqlen_kv;
    return a;
}

// Returns the arguments that all passes of a reference share, for rows of the given side and
// columns of the other side. `queries`: Q and dO; `keys`: K and V. ATTEND is the argument struct of
// the reference; it has members with these names.
template <class ATTEND, class ELEMENT>
static ATTEND attend_begin(const struct reference_cuda *r, const struct reference_rows *rows,
                           enum shard_side side, const ELEMENT *const (&queries)[2],
                           const ELEMENT *const (&keys)[2])
{
    const struct cp_case *c = r->c;
    ATTEND a = {};
    a.c = attend_case_of(r);
    for (int i = 0; i < 2; i++) {
        a.rows[i] = side == SIDE_Q ? queries[i] : keys[i];
        a.columns[i] = side == SIDE_Q ? keys[i] : queries[i];
    }
    a.row_tokens = r->tokens[side];
    a.column_tokens = r->tokens[side == SIDE_Q ? SIDE_KV : SIDE_Q];
    a.width[0] = reference_cuda_padded(c->head_dim_qk);
    a.width[1] = reference_cuda_padded(c->head_dim_v);
    a.tiles = rows->tiles;
    a.group = c->heads / c->kv_heads;
    a.heads = r->kv_count * (side == SIDE_Q ? a.group : 1);
    a.head_first = r->kv_first * (side == SIDE_Q ? a.group : 1);
    a.sinks = r->sinks;
    a.query_rows = side == SIDE_Q ? rows->rows : r->tokens[SIDE_Q];
    a.result_rows = rows->rows;
    return a;
}

// Fills queries, keys, shift and row_end of a place from its tile.
static __device__ __forceinline__ void attend_sequence(const attend_case &a, attend_place &p)
{
    const reference_sequence &sequence = a.sequences[p.tile.sequence];
    p.queries = (int)sequence.length[SIDE_Q];
    p.keys = (int)sequence.length[SIDE_KV];
    p.shift = a.bottom_right ? p.keys - p.queries : 0;
    p.row_end = (int)p.tile.position + p.tile.count;
}

// True if the query sees the key, by the definition of the mask. Both are positions in the
// sequence; false beyond its end.
static __device__ __forceinline__ bool attend_sees(const attend_case &a, const attend_place &p,
                                                   int query, int key)
{
    int ahead = key - (query + p.shift);
    return query < p.queries && key < p.keys && -a.left <= ahead && ahead <= a.right;
}

// Finds a range [*begin, *end) that includes every column visible to rows [first, first + count).
// KEYS: rows are keys, columns are queries. The range is empty if *end <= *begin.
template <bool KEYS>
static __device__ __forceinline__ void attend_columns(const attend_case &a, const attend_place &p,
                                                      int first, int count, int *begin, int *end)
{
    int last = first + count - 1;
    int from = KEYS ? first - p.shift - a.right : first + p.shift - a.left;
    int to = KEYS ? last - p.shift + a.left : last + p.shift + a.right;
    *begin = max(from, 0);
    *end = min(to + 1, KEYS ? p.queries : p.keys);
}

static __device__ __forceinline__ float attend_bias(const attend_case &a, const attend_place &p,
                                                    int query, int key)
{
    int64_t index = p.tile.sequence * a.bias.batch_step + p.head * a.bias.head_step +
                    query * a.bias.row_step + key;
    return a.bias.given ? element_loaded(a.bias.dtype, a.bias.given, index)
                        : element_drawn(a.bias.draw, a.bias.dtype, (uint64_t)index);
}

// Returns the logit of a pair from its scaled score: softcap, then bias. Sets *slope to the
// derivative of the softcap. With e = exp(-2 |x|) it is 1 - tanh^2 = 4 e / (1 + e)^2, without
// cancellation.
static __device__ __forceinline__ float attend_logit(const attend_case &a, const attend_place &p,
                                                     float scaled, int query, int key, float *slope)
{
    float logit = scaled;
    *slope = 1;
    if (a.softcap != 0) {
        float x = scaled / a.softcap, e = expf(-2 * fabsf(x));
        logit = a.softcap * tanhf(x);
        *slope = 4 * e / ((1 + e) * (1 + e));
    }
    return a.bias.present ? logit + attend_bias(a, p, query, key) : logit;
}

// The twin's slope of the softcap, from the exact slope of attend_logit(). Its error has opposite
// signs in even and odd columns.
static __device__ __forceinline__ float attend_slope_twin(const attend_case &a, float slope,
                                                          int column)
{
    return a.softcap != 0 ? rules_cap_slope(slope, a.cap_error, column % 2) : slope;
}

#endif
