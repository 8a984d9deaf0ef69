// SPDX-License-Identifier: Apache-2.0
// A plan: the operations that one rank executes for a case, a collective or linear layers, as data,
// with the memory that each operation reads and writes. Only the builder makes waits between
// streams; it derives them from these accesses.
//
// Building is pure: the same case and rank give the same plan. A plan owns its arrays.
#ifndef CPATTN_PLAN_PLAN_H
#define CPATTN_PLAN_PLAN_H

#include <stdio.h>

#include "plan/case.h"
#include "plan/collective.h"
#include "plan/linear.h"
#include "plan/slice.h"
#include "plan/team.h"

// Operations of one stream run in plan order; `waits` orders operations of different streams.
enum plan_stream { STREAM_COMPUTE, STREAM_COMM, PLAN_STREAMS };

// The contents of a buffer before the first operation (inputs) or after the last (results).
enum buffer_role {
    BUFFER_INPUT_Q,    // dtype [q rows][heads][d_qk]
    BUFFER_INPUT_KV,   // dtype K [kv rows][kv_heads][d_qk] followed by V [kv rows][kv_heads][d_v]
    BUFFER_INPUT_DO,   // dtype [q rows][heads][d_v]
    BUFFER_OUT,        // dtype [q rows][heads][d_v]
    BUFFER_LSE,        // fp32 [heads][q rows]
    BUFFER_DQ,         // dtype, as Q
    BUFFER_DKV,        // dtype, as KV
    BUFFER_INPUT_BIAS, // dtype [heads][rows][seqlen_kv], see plan/bias.h
    BUFFER_DBIAS,      // dtype, the rank's share of the gradient (plan/bias.h)
    BUFFER_INPUT_SINK, // fp32 [heads of the case]
    BUFFER_DSINK,      // fp32 [heads of the case], the same on every rank
    BUFFER_MAX_LOGIT,  // fp32 [heads of the case], the same on every rank
    BUFFER_SEND,       // of a collective (plan/collective.h), like the next two
    BUFFER_RECEIVE,
    BUFFER_SHARED, // send and receive in one: an input and a result
    BUFFER_LINEAR, // + enum linear_tensor: of linear layers (plan/linear.h)
    BUFFER_SCRATCH = BUFFER_LINEAR + LINEAR_TENSORS, // undefined
};

struct plan_buffer {
    char name[16];
    enum buffer_role role;
    int64_t bytes;
    // Guard bytes on either side, which no operation may write; rank/untouched.h checks them.
    int64_t before, after;
};

// Part of a buffer: `blocks` blocks, `block_stride` bytes apart, the first at `offset`. A block has
// `rows` pieces of `bytes` bytes each, `stride` bytes apart. rows 0 and 1 are one piece, without
// stride and blocks; blocks 0 and 1 are one block. Pieces ascend and do not overlap. bytes == 0: an
// empty region.
struct region {
    int32_t buffer;
    int64_t offset, bytes;
    int64_t rows, stride;
    int64_t blocks, block_stride;
};

// Returns the region with its pieces merged where possible; empty if any count is 0.
struct region region_make(struct region r);

static inline int64_t region_blocks(const struct region *r)
{
    return r->blocks > 1 ? r->blocks : 1;
}
static inline int64_t region_pieces(const struct region *r)
{
    return r->rows > 1 ? r->rows * region_blocks(r) : 1;
}
// Offset of the i-th piece in the buffer.
static inline int64_t region_piece(const struct region *r, int64_t i)
{
    if (r->rows <= 1)
        return r->offset;
    return r->offset + i / r->rows * r->block_stride + i % r->rows * r->stride;
}

// Bytes of all pieces together; bytes from the begin of the first piece to the end of the last.
static inline int64_t region_total(const struct region *r)
{
    return region_pieces(r) * r->bytes;
}
static inline int64_t region_extent(const struct region *r)
{
    return region_piece(r, region_pieces(r) - 1) - r->offset + r->bytes;
}

// Bytes [offset, offset + bytes) of a region in one piece.
static inline struct region region_part(struct region whole, int64_t offset, int64_t bytes)
{
    return (struct region){.buffer = whole.buffer, .offset = whole.offset + offset, .bytes = bytes};
}

enum op_kind {
    OP_ATTEND_FORWARD,  // (O, LSE) <- merge of (O, LSE) with the attention of the slices
    OP_ATTEND_BACKWARD, // dQ, dK, dV += their parts from the slices
    OP_ROW_DOT,         // D = rowsum(dO * O), fp32 [heads][q rows]
    OP_ADD,             // destination += source, fp32; the destination may be in pieces
    OP_CONVERT,         // destination (dtype) = source (fp32), rounded to nearest even
    OP_MAX,             // destination = max(destination, source), fp32
    OP_FILL,            // destination (fp32) = value
    OP_FILL_HEADS,      // destination (fp32 [heads][q rows]) = source (fp32 [heads]), head by head
    OP_SINK_GRAD,       // dsink[h] += -sum over the slices' rows of exp(sink[h] - LSE) D
    OP_REDUCE,          // destination = destination (reduction) source, elements of a collective
    OP_DIVIDE,          // destination /= value, elements of a collective
    // Of linear layers, on matrices of their element type; each result is rounded once, to nearest.
    OP_PRODUCT,           // c = a b + bias, a row added to all rows (plan/product.h)
    OP_ACTIVATE,          // to = the activation of h, row by row
    OP_ACTIVATE_BACKWARD, // to = the gradient of h, from the gradient d of the activation
    OP_COLUMN_SUM,        // destination [n] = the sum of the rows of source [m][n]
    OP_SUM_PARTS,         // destination = the sum of the parts, in the order of ranks, + bias
    OP_COPY,              // regions within the rank, as transfers with itself
    OP_EXCHANGE,          // send and receive regions with peers, all at once
    OP_KINDS,
};

// Operands by kind. In an op, operand[i] is the region of the i-th name of its kind.
enum {
    ATTEND_Q,
    ATTEND_K,
    ATTEND_V,
    ATTEND_O,
    ATTEND_LSE,
    ATTEND_DO,
    ATTEND_D,
    ATTEND_DQ,
    ATTEND_DK,
    ATTEND_DV,
    ATTEND_MAX,   // fp32 [heads], running maximum of the logits; empty: not wanted
    ATTEND_BIAS,  // dtype [1 or heads][bias_rows][seqlen_kv]; empty: none
    ATTEND_DBIAS, // fp32, as the bias
    OPERANDS_MAX
};
enum { ROW_DOT_DO, ROW_DOT_O, ROW_DOT_D }; // dO in dtype, O in fp32 (the accumulator)
// All others; fill and divide use UNARY_DESTINATION only.
enum { UNARY_SOURCE, UNARY_DESTINATION };
enum { PRODUCT_A, PRODUCT_B, PRODUCT_BIAS, PRODUCT_C }; // bias empty: none
enum { ACTIVATE_H, ACTIVATE_D, ACTIVATE_TO };           // d: backward only
// parts [k - 1][m][n] of the other ranks, own [m][n]; bias empty: none
enum { SUM_PARTS, SUM_OWN, SUM_BIAS, SUM_DESTINATION };
enum { SINK_GRAD_SINK, SINK_GRAD_LSE, SINK_GRAD_D, SINK_GRAD_DSINK };

enum access { ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_READ_WRITE = 3 };

// How an operation of this kind accesses its i-th operand; ACCESS_NONE: it has no such operand.
enum access op_access(enum op_kind kind, int operand);
const char *op_kind_name(enum op_kind kind);

// One message pair with a peer inside an exchange: `send` is read, `receive` is written; either may
// be empty. peer == own rank is a local copy. The k-th non-empty send to a peer matches the k-th
// non-empty receive from this rank in the peer's list.
struct transfer {
    int32_t peer;
    struct region send, receive;
};

enum plan_phase { PHASE_FORWARD = 1, PHASE_BACKWARD };

struct op {
    enum op_kind kind;
    enum plan_stream stream;
    enum plan_phase phase;
    int32_t step; // of the algorithm, for output and progress
    struct region operand[OPERANDS_MAX];
    struct heads heads;     // attend, row dot, fill heads, sink gradient: heads of the operands
    int64_t q_rows;         // same operations: rows of the query operands
    int64_t bias_rows;      // attend with a bias
    float value;            // fill, divide
    struct product product; // of linear layers; OP_SUM_PARTS: k is the number of ranks
    int32_t slice_first, slice_count;       // attend, sink gradient (without keys): in plan.slices
    int32_t transfer_first, transfer_count; // exchange, copy: in plan.transfers
    int32_t wait_first, wait_count; // in plan.waits: operations of other streams to wait for
};

struct plan {
    // Plans of other kinds: a default case with world_size, explore_seed and operation_times.
    struct cp_case c;
    struct collective collective; // world_size 0: not the plan of a collective
    struct linear linear;         // world_size 0: not the plan of linear layers
    int32_t rank;
    struct plan_buffer *buffers;
    int32_t buffer_count;
    struct op *ops;
    int32_t op_count;
    struct slice *slices;
    int32_t slice_count;
    struct transfer *transfers;
    int32_t transfer_count;
    int32_t *waits;
    int32_t wait_count;
};

// Builds the plan of `rank` for a case that case_check() admits. RESOURCE_EXHAUSTED: out of memory.
enum status plan_create(const struct cp_case *c, int rank, struct plan **plan,
                        struct error *error) MUST_CHECK;
// Limit of slices in a plan, and an upper bound for the plan of any rank of a case: every span of
// queries with every span of keys. case_check() refuses a case whose bound exceeds the limit. A
// ring of 64 ranks with 4096 sequences stays below it.
#define PLAN_SLICES_MAX (INT64_C(9) << 18)
int64_t plan_slices_bound(const struct cp_case *c);

// Frees the slices of a plan that will be neither executed nor explained.
void plan_forget_slices(struct plan *plan);
// Removes everything except the buffers of inputs and results; for ranks that do not execute a
// plan.
void plan_keep_tensors(struct plan *plan);
// Gives the buffers of inputs and results guard bytes (common/guard.h); with `scratch` all buffers.
void plan_guard(struct plan *plan, bool scratch);
void plan_destroy(struct plan *plan);

// Checks the plans of all ranks of one case together, independently of the builder:
// - each input and output of the case exists once and has its size; inputs are not written;
// - regions are inside their buffers, slices inside their operands, operands match each other;
// - waits refer to earlier operations of other streams; exactly the exchanges are on STREAM_COMM;
// - any two operations that access the same bytes, of which one writes, are ordered by streams and
//   waits; no operation writes bytes that it also accesses through another operand;
// - nothing is read before it was written or is an input; every output is written completely;
// - all ranks have the same number of exchanges, and the messages that a rank sends in its n-th
//   exchange match those that its peers receive in their n-th, in number and bytes. So no deadlock
//   is possible.
// INTERNAL: a sentence names rank, operations and bytes of the first fault. RESOURCE_EXHAUSTED: out
// of memory.
enum status plan_check(struct plan *const *plans, int world_size, struct error *error) MUST_CHECK;
// The same in two steps, for callers that do not keep all slices at once: all points except the
// last, for one plan; then the last point, which needs no slices.
enum status plan_check_alone(const struct plan *plan, struct error *error) MUST_CHECK;
enum status plan_check_exchanges(struct plan *const *plans, int world_size,
                                 struct error *error) MUST_CHECK;

// Writes the plan to `out` as aligned text: buffers, then per step the computation (FLOPs), the
// transfers (bytes, peers) and the waits. The caller checks the stream for errors.
void plan_explain(const struct plan *plan, FILE *out);

// Describes the job of the plan in one line. Returns the length.
int plan_describe(const struct plan *plan, char *text, size_t size);

double op_flops(const struct plan *plan, const struct op *op);  // attend, product; else 0
int64_t op_bytes(const struct plan *plan, const struct op *op); // sent by an exchange, else 0

#endif
