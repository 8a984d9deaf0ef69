// SPDX-License-Identifier: Apache-2.0
// What an algorithm writes a plan with. Operations are added in an order that is correct when
// executed one after the other; the builder derives the waits that keep it correct on several
// streams.
#ifndef CPATTN_PLAN_BUILDER_H
#define CPATTN_PLAN_BUILDER_H

#include "plan/plan.h"
#include "plan/shard.h"

struct builder; // memory errors are sticky: every call is legal after one, plan_create() reports it

int32_t builder_buffer(struct builder *b, const char *name, enum buffer_role role, int64_t bytes);
struct region builder_region(struct builder *b, int32_t buffer, int64_t offset, int64_t bytes);

// Marks the operations added from here on.
void builder_step(struct builder *b, enum plan_phase phase, int step);

// Adds an operation on a stream. Slices, transfers and operands are copied. An attend operation
// without slices and an exchange without bytes are not added.
void builder_attend_forward(struct builder *b, const struct region operand[OPERANDS_MAX],
                            const struct slice *slices, int count);
void builder_attend_backward(struct builder *b, const struct region operand[OPERANDS_MAX],
                             const struct slice *slices, int count);
void builder_row_dot(struct builder *b, struct region d_out, struct region out, struct region d);
void builder_add(struct builder *b, struct region source, struct region destination);
void builder_convert(struct builder *b, struct region source, struct region destination);
void builder_fill(struct builder *b, struct region destination, float value);
void builder_exchange(struct builder *b, const struct transfer *transfers, int count);

// The case and rank being planned.
const struct cp_case *builder_case(const struct builder *b);
int builder_rank(const struct builder *b);

// Each algorithm is one function in one file of this name.
void ring_build(struct builder *b);

#endif
