// SPDX-License-Identifier: Apache-2.0
// cpattn-rank on the CPU with a mistake in plans of other kinds: a reduction lacks one rank, and
// the parts of a layer are summed without the bias.
#include "plan/collective.h"
#include "plan/linear.h"
#include "plan/plan.h"
#include "rank/process.h"

enum status __real_collective_plan(const struct collective *c, int rank, struct plan **plan,
                                   struct error *error);
enum status __wrap_collective_plan(const struct collective *c, int rank, struct plan **plan,
                                   struct error *error);
enum status __real_linear_plan(const struct linear *l, int rank, struct plan **plan,
                               struct error *error);
enum status __wrap_linear_plan(const struct linear *l, int rank, struct plan **plan,
                               struct error *error);

enum status __wrap_collective_plan(const struct collective *c, int rank, struct plan **plan,
                                   struct error *error)
{
    enum status status = __real_collective_plan(c, rank, plan, error);
    for (int i = 0; status == STATUS_OK && i < (*plan)->op_count; i++) {
        struct op *op = &(*plan)->ops[i];
        if (op->kind != OP_REDUCE)
            continue;
        for (int k = 0; k < OPERANDS_MAX; k++)
            op->operand[k].bytes = 0;
        break;
    }
    return status;
}

enum status __wrap_linear_plan(const struct linear *l, int rank, struct plan **plan,
                               struct error *error)
{
    enum status status = __real_linear_plan(l, rank, plan, error);
    for (int i = 0; status == STATUS_OK && i < (*plan)->op_count; i++)
        if ((*plan)->ops[i].kind == OP_SUM_PARTS)
            (*plan)->ops[i].operand[SUM_BIAS].bytes = 0;
    return status;
}

int main(int argc, char **argv)
{
    return process_main(argc, argv, &engine_cpu);
}
