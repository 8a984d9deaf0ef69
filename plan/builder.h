// SPDX-License-Identifier: Apache-2.0
// The builder, with which an algorithm writes a plan. The algorithm adds operations in an order
// that is correct when executed one after the other. The builder derives the waits that keep it
// correct on several streams. It leaves out waits that the stream order or an earlier wait implies.
#ifndef CPATTN_PLAN_BUILDER_H
#define CPATTN_PLAN_BUILDER_H

#include "plan/plan.h"
#include "plan/shard.h"

struct builder; // after a memory error every call is legal, and builder_finish() fails

// For plan_create(). create: NULL if out of memory. finish: moves the plan to the caller, or
// RESOURCE_EXHAUSTED after a memory error. destroy: accepts NULL.
struct builder *builder_create(const struct cp_case *c, int rank);
// As builder_create(), for other kinds of jobs.
struct builder *builder_create_collective(const struct collective *c, int rank);
struct builder *builder_create_linear(const struct linear *l, int rank);
enum status builder_finish(struct builder *b, struct plan **plan, struct error *error) MUST_CHECK;
void builder_destroy(struct builder *b);

// The case and rank being planned.
const struct cp_case *builder_case(const struct builder *b);
int builder_rank(const struct builder *b);

// Zeroed memory for the algorithm's own arrays, valid until its build function returns. NULL: out
// of memory; the algorithm then returns.
void *builder_alloc(struct builder *b, size_t count, size_t size);

// Adds a buffer and returns its index. The name is copied.
int32_t builder_buffer(struct builder *b, const char *name, enum buffer_role role, int64_t bytes);

// Sets phase and step of the operations that are added from here on.
void builder_step(struct builder *b, enum plan_phase phase, int step);

// Each adds an operation: exchanges on STREAM_COMM, all others on STREAM_COMPUTE. Slices, transfers
// and operands are copied. An operation without slices or with an empty destination is not added.
// An exchange is added even if all its messages are empty, so that the n-th exchange is the same on
// all ranks.
void builder_attend(struct builder *b, enum op_kind kind, struct heads heads, int64_t q_rows,
                    int64_t bias_rows, const struct region operand[OPERANDS_MAX],
                    const struct slice *slices, int count);
void builder_row_dot(struct builder *b, struct heads heads, int64_t q_rows, struct region d_out,
                     struct region out, struct region d);
void builder_fill_heads(struct builder *b, struct heads heads, int64_t q_rows, struct region source,
                        struct region destination);
// OP_SINK_GRAD over the query rows of the slices. The keys of the slices are ignored.
void builder_sink_grad(struct builder *b, struct heads heads, int64_t q_rows,
                       const struct region operand[OPERANDS_MAX], const struct slice *slices,
                       int count);
void builder_add(struct builder *b, struct region source, struct region destination);
void builder_max(struct builder *b, struct region source, struct region destination);
void builder_convert(struct builder *b, struct region source, struct region destination);
void builder_fill(struct builder *b, struct region destination, float value);
void builder_reduce(struct builder *b, struct region source, struct region destination);
void builder_divide(struct builder *b, struct region destination, float value);
// An operation of linear layers, OP_PRODUCT to OP_SUM_PARTS.
void builder_matrix(struct builder *b, enum op_kind kind, struct product product,
                    const struct region operand[OPERANDS_MAX]);
void builder_exchange(struct builder *b, const struct transfer *transfers, int count);
// Copies within the rank. Adds no operation if all transfers are empty.
void builder_copy(struct builder *b, const struct transfer *transfers, int count);

// Each algorithm is one function in a file of the same name.
void ring_build(struct builder *b);         // p2p
void gather_build(struct builder *b);       // all_gather
void ulysses_build(struct builder *b);      // a2a
void hierarchical_build(struct builder *b); // a2a+p2p

#endif
