// SPDX-License-Identifier: Apache-2.0
// The fields of a case by name: their table, and the names that set two fields at once.
#include <stdio.h>

#include "common/nearest.h"
#include "plan/case.h"
#include "plan/members.h"

const struct case_choice case_dtype_choices[] = {
    {"bf16", DTYPE_BF16}, {"fp16", DTYPE_FP16}, {"fp32", DTYPE_FP32}, {NULL, 0}};
// Names in PyTorch and NumPy.
const struct case_choice case_dtype_aliases[] = {
    {"bfloat16", DTYPE_BF16}, {"float16", DTYPE_FP16}, {"float32", DTYPE_FP32}, {NULL, 0}};
const struct case_choice case_format_choices[] = {
    {"bshd", FORMAT_BSHD}, {"sbhd", FORMAT_SBHD}, {"thd", FORMAT_THD}, {NULL, 0}};
const struct case_choice case_comm_choices[] = {
    {"p2p", COMM_P2P},   {"all_gather", COMM_ALL_GATHER},
    {"a2a", COMM_A2A},   {"a2a+p2p", COMM_A2A_P2P},
    {"auto", COMM_AUTO}, {NULL, 0}};
const struct case_choice case_sharding_choices[] = {
    {"zigzag", SHARDING_ZIGZAG}, {"contiguous", SHARDING_CONTIGUOUS}, {NULL, 0}};
const struct case_choice case_mask_choices[] = {{"none", MASK_NONE},
                                                {"causal", MASK_CAUSAL},
                                                {"causal_bottom_right", MASK_CAUSAL_BOTTOM_RIGHT},
                                                {"none_bottom_right", MASK_NONE_BOTTOM_RIGHT},
                                                {NULL, 0}};
// Names in TransformerEngine. Here the lengths define padding, so `padding_causal` means the same
// as `causal`.
static const struct case_choice mask_aliases[] = {
    {"no_mask", MASK_NONE_BOTTOM_RIGHT},
    {"padding", MASK_NONE_BOTTOM_RIGHT},
    {"padding_causal", MASK_CAUSAL},
    {"padding_causal_bottom_right", MASK_CAUSAL_BOTTOM_RIGHT},
    {NULL, 0}};
const struct case_choice case_softmax_choices[] = {{"vanilla", SOFTMAX_VANILLA},
                                                   {"off_by_one", SOFTMAX_OFF_BY_ONE},
                                                   {"learnable", SOFTMAX_LEARNABLE},
                                                   {NULL, 0}};
static const struct case_choice softmax_aliases[] = {{"off-by-one", SOFTMAX_OFF_BY_ONE}, {NULL, 0}};
const struct case_choice case_bias_choices[] = {{"none", BIAS_NONE}, {"111s", BIAS_111S},
                                                {"11ss", BIAS_11SS}, {"1h1s", BIAS_1H1S},
                                                {"1hss", BIAS_1HSS}, {"b11s", BIAS_B11S},
                                                {"b1ss", BIAS_B1SS}, {"bh1s", BIAS_BH1S},
                                                {"bhss", BIAS_BHSS}, {NULL, 0}};
static const struct case_choice bias_aliases[] = {{"no_bias", BIAS_NONE}, {NULL, 0}};
const struct case_choice case_verify_choices[] = {
    {"off", VERIFY_OFF}, {"auto", VERIFY_AUTO}, {"full", VERIFY_FULL}, {NULL, 0}};
const struct case_choice case_implementation_aliases[] = {{"cpattn", 0}, {NULL, 0}};
static const struct case_choice verify_aliases[] = {
    {"true", VERIFY_AUTO}, {"false", VERIFY_OFF}, {NULL, 0}};
const struct case_choice case_inputs_choices[] = {
    {"sharp", INPUTS_SHARP}, {"te", INPUTS_TE}, {NULL, 0}};

#define ENTRY(field, field_kind, ...)                                                              \
    {                                                                                              \
        .name = #field, .kind = field_kind, .offset = offsetof(struct cp_case, field),             \
        .size = sizeof(((struct cp_case *)NULL)->field), __VA_ARGS__                               \
    }
#define TEXT(field, text)         ENTRY(field, FIELD_TEXT, .help = text)
#define CHOICE(field, list, text) ENTRY(field, FIELD_CHOICE, .choices = list, .help = text)
#define ALIASED(field, text)                                                                       \
    ENTRY(field, FIELD_CHOICE, .choices = case_##field##_choices, .aliases = field##_aliases,      \
          .help = text)
#define INT(field, low, high, text) ENTRY(field, FIELD_INT, .min = low, .max = high, .help = text)
#define UINT(field, text)           ENTRY(field, FIELD_UINT, .help = text)
#define REAL(field, low, high, text)                                                               \
    ENTRY(field, FIELD_REAL, .real_min = low, .real_max = high, .help = text)
#define BOOL(field, text) ENTRY(field, FIELD_BOOL, .help = text)
#define LIST(field, which, text)                                                                   \
    {                                                                                              \
        .name = #field, .kind = FIELD_LIST,                                                        \
        .offset = offsetof(struct cp_case, list_count) + (which) * sizeof(int32_t),                \
        .size = sizeof(int32_t), .max = SEQLEN_MAX, .list = which, .help = text                    \
    }

// Upper bound of pad_multiple: no machine needs more than a page of tokens.
#define PAD_MULTIPLE_MAX 65536

static const struct case_field field_table[] = {
    TEXT(model, "label of the case for people"),
    ENTRY(implementation, FIELD_TEXT, .aliases = case_implementation_aliases,
          .help = "program that runs as the ranks: cpattn, or a guest of the daemon"),
    INT(world_size, 1, WORLD_SIZE_MAX, "ranks that share the sequence"),
    CHOICE(comm, case_comm_choices, "how ranks exchange keys and values"),
    INT(a2a_size, 1, WORLD_SIZE_MAX, "ranks of a group with a2a+p2p"),
    CHOICE(sharding, case_sharding_choices, "how a sequence is split over the ranks"),
    INT(nodes, 0, HOSTS_MAX, "hosts over which the ranks are spread evenly, 0: any"),
    INT(ranks_per_node, 0, WORLD_SIZE_MAX, "ranks on each host, 0: any"),
    ENTRY(dtype, FIELD_CHOICE, .choices = case_dtype_choices, .aliases = case_dtype_aliases,
          .help = "element type of inputs and results"),
    CHOICE(format, case_format_choices, "memory layout"),
    INT(batch, 1, BATCH_MAX, "sequences"),
    INT(heads, 1, HEADS_MAX, "query heads (a multiple of kv_heads)"),
    INT(kv_heads, 1, HEADS_MAX, "key and value heads"),
    INT(head_dim_qk, 1, HEAD_DIM_MAX, "head dimension of queries and of keys"),
    INT(head_dim_v, 1, HEAD_DIM_MAX, "head dimension of values and outputs"),
    INT(seqlen_q, 0, SEQLEN_MAX, "queries of a sequence over all ranks"),
    INT(seqlen_kv, 0, SEQLEN_MAX, "keys of a sequence over all ranks"),
    LIST(lengths_q, LIST_LENGTHS_Q, "queries of each sequence; empty: seqlen_q"),
    LIST(lengths_kv, LIST_LENGTHS_KV, "keys of each sequence; empty: lengths_q, or seqlen_kv"),
    LIST(padded_q, LIST_PADDED_Q, "queries that each sequence occupies in thd"),
    LIST(padded_kv, LIST_PADDED_KV, "keys that each sequence occupies in thd"),
    INT(pad_multiple, 1, PAD_MULTIPLE_MAX,
        "thd without padded lists: multiple to which "
        "sequences are padded"),
    ALIASED(mask, "which keys a query sees"),
    INT(window_left, WINDOW_UNBOUNDED, SEQLEN_MAX, "visible keys before the diagonal, -1: all"),
    INT(window_right, WINDOW_UNBOUNDED, SEQLEN_MAX, "visible keys after the diagonal, -1: all"),
    REAL(scale, 0, 1000000, "factor of the logits, 0: 1/sqrt(head_dim_qk)"),
    REAL(softcap, 0, 1000000, "smooth bound of the logits, 0: none"),
    ALIASED(softmax, "what the denominator contains besides the keys"),
    ALIASED(bias, "shape of the bias that is added to the logits"),
    BOOL(max_logit, "deliver the largest logit of each head"),
    TEXT(provider, "provider whose kernels compute the attention; empty: the daemon's own"),
    BOOL(provider_fallback, "the daemon's own kernels compute what the provider does not "
                            "support"),
    BOOL(training, "forward and backward (true), or forward only (false)"),
    BOOL(deterministic, "every run gives the same bits"),
    ALIASED(verify, "how much of the results is compared with the reference"),
    REAL(lse_tolerance, 0, LSE_TOLERANCE_MAX,
         "error of LSE that is accepted in addition to its limit, for approximate exponentials"),
    CHOICE(inputs, case_inputs_choices, "distribution of the inputs"),
    UINT(seed, "seed of the inputs"),
    UINT(explore_seed, "0: plan order, else a legal order drawn from this seed"),
    BOOL(operation_times, "each rank reports when each operation of its plan started and ended"),
    BOOL(graph, "launch plans as captured CUDA graphs (true) or operation by operation (false)"),
    {.name = NULL},
};

const struct case_field *case_fields(void)
{
    return field_table;
}

static const struct case_pair pair_table[] = {
    {"seqlen", {"seqlen_q", "seqlen_kv"}, "sets seqlen_q and seqlen_kv"},
    {"head_dim", {"head_dim_qk", "head_dim_v"}, "sets head_dim_qk and head_dim_v"},
    {NULL, {NULL}, NULL},
};

const struct case_pair *case_pairs(void)
{
    return pair_table;
}

const struct case_pair *case_pair_find(const char *name)
{
    for (const struct case_pair *pair = pair_table; pair->name; pair++)
        if (members_name_is(name, pair->name))
            return pair;
    return NULL;
}

const struct case_field *case_field_find(const char *name)
{
    return members_find(field_table, name);
}

enum status case_check_fields(const struct cp_case *c, struct error *error)
{
    return members_check(c, field_table, error);
}

int case_get(const struct cp_case *c, const struct case_field *field, char *text, size_t size)
{
    return members_get(c, field, text, size);
}

void case_names_offer(struct nearest *nearest)
{
    // Names that other programs use for a field, too different for the search by edit distance.
    static const char *const others[][2] = {{"causal", "mask"},
                                            {"is_causal", "mask"},
                                            {"attn_mask_type", "mask"},
                                            {"num_heads", "heads"},
                                            {"num_q_heads", "heads"},
                                            {"num_kv_heads", "kv_heads"},
                                            {"num_gqa_groups", "kv_heads"},
                                            {"head_size", "head_dim"},
                                            {"sm_scale", "scale"},
                                            {"softmax_scale", "scale"},
                                            {"window_size", "window_left"},
                                            {"sliding_window", "window_left"},
                                            {"qkv_format", "format"},
                                            {"layout", "format"},
                                            {"cp_size", "world_size"},
                                            {"ranks", "world_size"},
                                            {"sequence_length", "seqlen"},
                                            {"logits_soft_cap", "softcap"},
                                            {"attn_bias", "bias"},
                                            {"backward", "training"},
                                            {"cu_seqlens", "lengths_q"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        nearest_offer_other(nearest, others[i][0], others[i][1]);
}

static enum status refuse_name(const char *name, struct error *error)
{
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (const struct case_field *field = field_table; field->name; field++)
        nearest_offer(&nearest, field->name);
    for (const struct case_pair *pair = pair_table; pair->name; pair++)
        nearest_offer(&nearest, pair->name);
    case_names_offer(&nearest);
    return members_refuse_name("a case", name, &nearest, error);
}

static enum status pair_set(struct cp_case *c, const struct case_pair *pair, const char *value,
                            struct error *error)
{
    struct cp_case changed = *c;
    for (int i = 0; i < CASE_PAIR; i++) {
        enum status status = case_set(&changed, pair->members[i], value, error);
        if (status != STATUS_OK)
            return status;
    }
    *c = changed;
    return STATUS_OK;
}

enum status case_set(struct cp_case *c, const char *name, const char *value, struct error *error)
{
    const struct case_field *field = case_field_find(name);
    const struct case_pair *pair = case_pair_find(name);
    if (pair)
        return pair_set(c, pair, value, error);
    if (!field)
        return refuse_name(name, error);
    return members_set(c, field, value, error);
}
