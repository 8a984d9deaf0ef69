// SPDX-License-Identifier: Apache-2.0
#include "plan/support.h"

#include <math.h>

#include "plan/lengths.h"
#include "plan/plan.h"

// Standard deviation of a product of two numbers of TransformerEngine's inputs (judge/inputs.h).
#define TE_PRODUCT_DEVIATION 0.52
// Largest standard deviation of logits at which fp32 is precise enough for the limits of
// judge/rules.h.
#define LOGIT_DEVIATION_MAX  400
// fp16 ends at 65504. Largest standard deviation of Q, whose largest elements are five times as
// large; and of the terms of dQ, whose elements may be long sums.
#define FP16_Q_MAX           8192
#define FP16_DQ_MAX          2048

static enum status check_heads(const struct cp_case *c, struct error *error)
{
    if (c->heads % c->kv_heads == 0)
        return STATUS_OK;
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "heads is %d and kv_heads is %d; accepted is a heads that is a multiple of kv_heads",
        c->heads, c->kv_heads);
}

static enum status check_group_unused(const struct cp_case *c, struct error *error)
{
    if (c->comm == COMM_A2A_P2P || c->a2a_size == CASE_A2A_SIZE_DEFAULT)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "a2a_size is %d with comm %s; accepted is %d there, or comm a2a+p2p",
                     c->a2a_size, case_choice_name(case_comm_choices, c->comm),
                     CASE_A2A_SIZE_DEFAULT);
}

static enum status check_group(const struct cp_case *c, struct error *error)
{
    if (c->comm != COMM_A2A_P2P || c->world_size % c->a2a_size == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "a2a_size is %d and world_size is %d; accepted is a divisor of world_size",
                     c->a2a_size, c->world_size);
}

static enum status nodes_check(int32_t world_size, int32_t nodes, struct error *error)
{
    if (nodes == 0 || world_size % nodes == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "nodes is %d and world_size is %d; accepted is a divisor of world_size, or 0",
                     nodes, world_size);
}

static enum status check_nodes(const struct cp_case *c, struct error *error)
{
    return nodes_check(c->world_size, c->nodes, error);
}

static enum status ranks_per_node_check(int32_t world_size, int32_t nodes, int32_t ranks_per_node,
                                        struct error *error)
{
    int32_t made = ranks_per_node ? world_size / ranks_per_node : 0;
    if (ranks_per_node == 0 ||
        (world_size == made * ranks_per_node && (nodes == 0 || nodes == made)))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "ranks_per_node is %d, world_size is %d and nodes is %d; accepted is 0 or "
                     "world_size / nodes, and any divisor of world_size if nodes is 0",
                     ranks_per_node, world_size, nodes);
}

static enum status check_ranks_per_node(const struct cp_case *c, struct error *error)
{
    return ranks_per_node_check(c->world_size, c->nodes, c->ranks_per_node, error);
}

static enum status guest_order_check(const char *implementation, uint64_t explore_seed,
                                     struct error *error)
{
    if (!implementation[0] || explore_seed == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "explore_seed is %llu with implementation %s; accepted is 0 there, or "
                     "implementation cpattn",
                     (unsigned long long)explore_seed, implementation);
}

static enum status guest_times_check(const char *implementation, bool operation_times,
                                     struct error *error)
{
    if (!implementation[0] || !operation_times)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "operation_times is true with implementation %s; accepted is false there, or "
                     "implementation cpattn",
                     implementation);
}

enum status support_place(int32_t world_size, int32_t nodes, int32_t ranks_per_node,
                          struct error *error)
{
    enum status status = nodes_check(world_size, nodes, error);
    return status == STATUS_OK ? ranks_per_node_check(world_size, nodes, ranks_per_node, error)
                               : status;
}

enum status support_guest(const char *implementation, uint64_t explore_seed, bool operation_times,
                          struct error *error)
{
    enum status status = guest_order_check(implementation, explore_seed, error);
    return status == STATUS_OK ? guest_times_check(implementation, operation_times, error) : status;
}

static enum status check_window(const struct cp_case *c, struct error *error)
{
    if (!case_is_causal(c) || c->window_right <= 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "window_right is %lld with mask %s; accepted is -1 or 0 there, or mask none",
                     (long long)c->window_right, case_choice_name(case_mask_choices, c->mask));
}

static enum status check_scale(const struct cp_case *c, struct error *error)
{
    if (c->scale == 0 || (c->scale >= 1e-6 && c->scale <= 1e6))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "scale is %g; accepted is 0 (meaning 1/sqrt(head_dim_qk)) or 1e-6 to 1e6",
                     c->scale);
}

static enum status check_logits(const struct cp_case *c, struct error *error)
{
    double most = LOGIT_DEVIATION_MAX / (TE_PRODUCT_DEVIATION * sqrt(c->head_dim_qk));
    if (c->inputs != INPUTS_TE || c->verify == VERIFY_OFF || case_scale(c) <= most)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "scale is %g with inputs te and head_dim_qk %d; accepted is up to %g there, "
                     "or inputs sharp, or verify off",
                     c->scale, c->head_dim_qk, most);
}

static enum status check_range(const struct cp_case *c, struct error *error)
{
    double least = CASE_SHARP_DEVIATION / (FP16_Q_MAX * sqrt(c->head_dim_qk));
    double most = FP16_DQ_MAX / sqrt(c->head_dim_v), scale = case_scale(c);
    if (c->inputs == INPUTS_TE) // Q does not depend on the scale
        least = 0;
    if (c->dtype != DTYPE_FP16 || c->verify == VERIFY_OFF || (scale >= least && scale <= most))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "scale is %g with dtype fp16 and head_dim %d/%d; accepted is %g to %g there, "
                     "or another dtype, or verify off",
                     c->scale, c->head_dim_qk, c->head_dim_v, least, most);
}

static enum status check_softcap(const struct cp_case *c, struct error *error)
{
    if (c->softcap == 0 || (c->softcap >= 1e-3 && c->softcap <= 1e6))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "softcap is %g; accepted is 0 (none) or 1e-3 to 1e6", c->softcap);
}

static enum status check_guest_order(const struct cp_case *c, struct error *error)
{
    return guest_order_check(c->implementation, c->explore_seed, error);
}

static enum status check_guest_provider(const struct cp_case *c, struct error *error)
{
    if (!c->implementation[0] || !c->provider[0])
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "provider is %s with implementation %s; accepted is one of the two",
                     c->provider, c->implementation);
}

static enum status check_graph_guest(const struct cp_case *c, struct error *error)
{
    if (!c->implementation[0] || !c->graph)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "graph is true with implementation %s; accepted is false there, or "
                     "implementation cpattn",
                     c->implementation);
}

static enum status check_graph_provider(const struct cp_case *c, struct error *error)
{
    if (!c->provider[0] || !c->graph)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "graph is true with provider %s; accepted is false there, or no provider",
                     c->provider);
}

static enum status check_times_guest(const struct cp_case *c, struct error *error)
{
    return guest_times_check(c->implementation, c->operation_times, error);
}

static enum status check_times_graph(const struct cp_case *c, struct error *error)
{
    if (!c->graph || !c->operation_times)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "operation_times is true with graph true; accepted is one of the two");
}

static enum status check_memory(const struct cp_case *c, struct error *error)
{
    int64_t bytes;
    return case_memory(c, &bytes, error);
}

static enum status check_slices(const struct cp_case *c, struct error *error)
{
    int64_t slices = plan_slices_bound(c);
    if (slices <= PLAN_SLICES_MAX)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "batch %d on world_size %d with comm %s makes up to %lld slices of attention "
                     "on a rank; accepted is at most %lld, or comm p2p",
                     c->batch, c->world_size, case_choice_name(case_comm_choices, c->comm),
                     (long long)slices, (long long)PLAN_SLICES_MAX);
}

// Refuses a field without effect, and fields that contradict each other: both are probably
// mistakes.
static const struct support_rule rules[] = {
    {"a value outside the range or the choices of its field",
     "Ranges keep every sum of sizes within 64 bits and every message within memory. A value that "
     "is not among the choices, as fp8, is not implemented.",
     "--head-dim-qk 257", case_check_fields},
    {"a number of heads that is not a multiple of kv_heads",
     "Every key head serves the same number of query heads. There is no convention for other "
     "numbers of heads.",
     "--heads 12 --kv-heads 5", check_heads},
    {"an a2a_size with a comm other than a2a+p2p", "It would have no effect.", "--a2a-size 4",
     check_group_unused},
    {"an a2a_size that does not divide world_size", "All groups of ranks have the same size.",
     "--world-size 6 --comm a2a+p2p --a2a-size 4", check_group},
    {"a number of nodes that does not divide world_size",
     "Ranks are spread evenly, so that every node has the same part of the exchanges.",
     "--world-size 8 --nodes 3", check_nodes},
    {"ranks_per_node other than world_size divided by nodes",
     "One of the three follows from the other two.", "--world-size 8 --nodes 2 --ranks-per-node 2",
     check_ranks_per_node},
    {"a window_right beyond the diagonal with a causal mask",
     "The mask hides the keys that the window shows, so one of the two is a mistake.",
     "--window-right 3", check_window},
    {"a scale that is neither 0 nor from 1e-6 to 1e6",
     "Logits in fp32 would all be equal or infinite, whatever the inputs are.", "--scale 1e-7",
     check_scale},
    {"verifying inputs te with a scale that gives logits a standard deviation above 400",
     "fp32 would resolve such logits too coarsely for a meaningful verdict.",
     "--inputs te --scale 1000", check_logits},
    {"verifying dtype fp16 with a scale that takes Q or dQ out of its range",
     "An infinity cannot be compared.", "--dtype fp16 --scale 1e-5", check_range},
    {"a softcap that is neither 0 nor from 1e-3 to 1e6",
     "A smaller softcap leaves nothing of the logits; a larger one does not change them.",
     "--softcap 1e-4", check_softcap},
    {"a list without exactly one number for each sequence",
     "It would be unclear which sequence a number belongs to.", "--lengths-q 9,8,7",
     lengths_check_counts},
    {"a length beyond the seqlen of its side",
     "The seqlen is the largest possible length, and the shape of a bias follows from it.",
     "--lengths-q 512,513", lengths_check_values},
    {"padded lengths, or a pad_multiple, with a format other than thd",
     "In the other formats every sequence occupies its seqlen.", "--padded-q 600,600",
     lengths_check_format},
    {"a padded length below the length of the sequence",
     "The tokens of the sequence would not fit.", "--format thd --padded-q 512,511",
     lengths_check_padded},
    {"a pad_multiple together with padded lengths for both sides", "It would have no effect.",
     "--format thd --padded-q 512,520 --pad-multiple 8", lengths_check_multiple},
    {"an explore_seed with an implementation that is a guest",
     "The seed draws an order of a plan, and guests have no plans.",
     "--implementation torch --explore-seed 7", check_guest_order},
    {"a provider with an implementation that is a guest", "It would have no effect.",
     "--implementation torch --provider cudnn", check_guest_provider},
    {"a graph with an implementation that is a guest",
     "A graph is captured from a plan, and guests have no plans.",
     "--implementation torch --graph true", check_graph_guest},
    {"a graph with a provider",
     "Its kernels need not be able to be captured, and their arguments need not outlive a call.",
     "--provider cudnn --graph true", check_graph_provider},
    {"operation_times with an implementation that is a guest",
     "The operations are those of a plan, and guests have no plans.",
     "--implementation torch --operation-times true", check_times_guest},
    {"operation_times with a graph", "A graph runs as a whole.",
     "--graph true --operation-times true", check_times_graph},
    {"sizes that take more than 1 PiB of memory on a rank",
     "No machine has that much. The daemon also refuses what exceeds its own machine.",
     "--batch 4096 --heads 4096 --kv-heads 4096 --seqlen-q 16777216 --seqlen-kv 16777216",
     check_memory},
    {"all-to-all over many ranks that cuts sequences into more than 2 million slices of attention",
     "Building the plan would take longer than the attention.",
     "--world-size 64 --comm a2a --batch 4096 --bias 1hss --softmax learnable", check_slices},
    {.what = NULL},
};

const struct support_rule *support_rules(void)
{
    return rules;
}

enum status case_check(const struct cp_case *c, struct error *error)
{
    enum status status = STATUS_OK;
    for (const struct support_rule *rule = rules; rule->what && status == STATUS_OK; rule++)
        status = rule->check(c, error);
    return status;
}
