// SPDX-License-Identifier: Apache-2.0
// Linear layers as a kind of job.
#include "plan/linear.h"
#include "plan/members.h"
#include "plan/support.h"

static const struct case_choice layers[] = {
    {"column", LINEAR_COLUMN}, {"row", LINEAR_ROW}, {"mlp", LINEAR_MLP}, {NULL, 0}};
static const struct case_choice activations[] = {{"auto", ACTIVATION_NONE},
                                                 {"gelu", ACTIVATION_GELU},
                                                 {"gelu_tanh", ACTIVATION_GELU_TANH},
                                                 {"swiglu", ACTIVATION_SWIGLU},
                                                 {NULL, 0}};

#define S struct linear
static const struct case_field fields[] = {
    MEMBER_CHOICE(S, layer, layers, "column-parallel, row-parallel, or an mlp of both"),
    MEMBER_INT(S, world_size, 1, WORLD_SIZE_MAX, "ranks"),
    MEMBER_INT(S, tokens, 1, LINEAR_SIZE_MAX, "rows of x"),
    MEMBER_INT(S, in_features, 1, LINEAR_SIZE_MAX, "columns of x"),
    MEMBER_INT(S, hidden, 0, LINEAR_SIZE_MAX,
               "features between the layers of an mlp, 0: 2048; other layers: 0"),
    MEMBER_INT(S, out_features, 1, LINEAR_SIZE_MAX, "columns of y"),
    MEMBER_CHOICE(S, activation, activations,
                  "between the layers of an mlp, auto: gelu; other layers: auto"),
    MEMBER_FIELD(S, dtype, FIELD_CHOICE, .choices = case_dtype_choices,
                 .aliases = case_dtype_aliases, .help = "element type of all tensors"),
    MEMBER_BOOL(S, bias, "layers have a bias (true) or not (false)"),
    MEMBER_BOOL(S, sequence_parallel, "divide the tokens among the ranks"),
    MEMBER_BOOL(S, training, "forward and backward (true) or forward only (false)"),
    MEMBER_INT(S, chunks, 1, LINEAR_CHUNKS_MAX,
               "pieces of a rank's tokens; one is sent while others are multiplied"),
    MEMBER_INT(S, iterations, 1, LINEAR_ITERATIONS_MAX, "consecutive runs; the time is their mean"),
    MEMBER_BOOL(S, verify, "compare the results (true) or only run and time (false)"),
    MEMBER_UINT(S, seed, "seed of the inputs"),
    MEMBER_UINT(S, explore_seed, "0: plan order, else a legal order drawn from this seed"),
    MEMBER_BOOL(S, operation_times,
                "each rank reports when each operation of its last run started and ended"),
    MEMBERS_PLACE(S),
    {.name = NULL}};
#undef S

static void init(void *spec)
{
    *(struct linear *)spec = (struct linear){.world_size = 2,
                                             .layer = LINEAR_MLP,
                                             .dtype = DTYPE_BF16,
                                             .tokens = 256,
                                             .in_features = 512,
                                             .out_features = 512,
                                             .bias = true,
                                             .training = true,
                                             .chunks = 2,
                                             .iterations = 1,
                                             .verify = true,
                                             .seed = 1234};
}

#define HIDDEN_DEFAULT 2048

static void finish(void *spec)
{
    struct linear *l = spec;
    if (l->layer != LINEAR_MLP)
        return;
    l->hidden = l->hidden > 0 ? l->hidden : HIDDEN_DEFAULT;
    l->activation = l->activation != ACTIVATION_NONE ? l->activation : ACTIVATION_GELU;
}

// Checks the fields that only an mlp has.
static enum status middle_check(const struct linear *l, struct error *error)
{
    const char *layer = case_choice_name(layers, (int)l->layer);
    if (l->layer == LINEAR_MLP && linear_sizes(l).gates * l->hidden > LINEAR_SIZE_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "hidden is %lld with swiglu; accepted is 1 to %lld", (long long)l->hidden,
                         (long long)(LINEAR_SIZE_MAX / 2));
    if (l->layer != LINEAR_MLP && l->hidden != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "hidden is %lld with layer %s; accepted is 0, or layer mlp, which has "
                         "features between its layers",
                         (long long)l->hidden, layer);
    if (l->layer != LINEAR_MLP && l->activation != ACTIVATION_NONE)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "activation is %s with layer %s; accepted is auto, or layer mlp, which "
                         "has one between its layers",
                         case_choice_name(activations, (int)l->activation), layer);
    return STATUS_OK;
}

static enum status check(const void *spec, struct error *error)
{
    const struct linear *l = spec;
    enum status status = middle_check(l, error);
    if (status == STATUS_OK)
        status = support_place(l->world_size, l->nodes, l->ranks_per_node, error);
    return status == STATUS_OK
               ? support_guest(l->implementation, l->explore_seed, l->operation_times, error)
               : status;
}

static void needs_fill(const void *spec, struct job_needs *needs)
{
    const struct linear *l = spec;
    needs->world_size = l->world_size;
    needs->nodes = l->nodes;
    needs->ranks_per_node = l->ranks_per_node;
    needs->implementation = l->implementation;
    needs->verdict = l->verify;
    for (int rank = 0; rank < l->world_size; rank++) {
        double flops = linear_flops(l, rank);
        needs->cost.forward += l->iterations * (l->training ? flops / 3 : flops);
        needs->cost.backward += l->iterations * (l->training ? flops * 2 / 3 : 0);
    }
}

static enum status memory(const void *spec, int64_t *rank_bytes, struct error *error)
{
    return linear_memory(spec, rank_bytes, error);
}

// Rank 0 has elements of every tensor of the job.
static bool tensor(const void *spec, int rank, int index, struct job_tensor *t)
{
    const struct linear *l = spec;
    enum linear_tensor which = (enum linear_tensor)index;
    struct linear_shape shape = linear_outline(l, rank, which);
    bool bias =
        which == LINEAR_B1 || which == LINEAR_B2 || which == LINEAR_DB1 || which == LINEAR_DB2;
    if (linear_bytes(l, 0, which) == 0)
        return false;
    *t = (struct job_tensor){.name = linear_tensor_name(l, which),
                             .dtype = (enum job_dtype)l->dtype,
                             .is_result = which >= LINEAR_Y,
                             .dims = bias ? 1 : 2,
                             .shape = {bias ? shape.columns : shape.rows, shape.columns}};
    return true;
}

static enum status plan_build(const void *spec, int rank, struct plan **plan, struct error *error)
{
    return linear_plan(spec, rank, plan, error);
}

// The rate of rank 0, which has the most work.
static int rates(const void *spec, struct job_rate rates[JOB_RATES_MAX])
{
    rates[0] = (struct job_rate){"TFLOP/s_per_rank", linear_flops(spec, 0), 1e12};
    return 1;
}

const struct job_kind job_kind_linear = {
    .name = "linear",
    .about = "run a tensor-parallel linear layer or mlp",
    .argument = "layer",
    .spec_bytes = sizeof(struct linear),
    .fields = fields,
    .init = init,
    .finish = finish,
    .check = check,
    .needs = needs_fill,
    .memory = memory,
    .plan = plan_build,
    .tensor_count = LINEAR_TENSORS,
    .tensor = tensor,
    .rates = rates,
};
_Static_assert(sizeof(struct linear) <= JOB_SPEC_BYTES, "the spec has room");
