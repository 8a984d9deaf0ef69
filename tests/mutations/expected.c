// SPDX-License-Identifier: Apache-2.0
#include "tests/mutations/expected.h"

#include "common/report.h"

// ---- the cases ----

struct variant {
    const char *name;
    int world_size;
    enum case_comm comm;
    enum case_mask mask;
    enum case_format format;
    int32_t lengths[2]; // 0: none
    int64_t seqlen;     // 0: the usual
    int64_t window;     // 0: none
    int64_t keys_more;
    enum case_softmax softmax;
    enum case_bias bias;
    double softcap;
    bool max_logit;
    enum case_sharding sharding; // 0: zigzag
    enum case_dtype dtype;       // 0: bf16
};

static const struct variant variants[VARIANTS] = {
    [PLAIN_CAUSAL] = {"causal", 2, COMM_P2P, MASK_CAUSAL},
    [PLAIN_FULL] = {"full", 2, COMM_P2P, MASK_NONE},
    [PLAIN_CAUSAL_4] = {"causal", 4, COMM_P2P, MASK_CAUSAL},
    [PLAIN_FULL_4] = {"full", 4, COMM_P2P, MASK_NONE},
    [GATHER] = {"all_gather", 4, COMM_ALL_GATHER, MASK_CAUSAL},
    [ULYSSES] = {"a2a", 4, COMM_A2A, MASK_CAUSAL},
    [HIERARCHICAL] = {"a2a+p2p", 4, COMM_A2A_P2P, MASK_CAUSAL},
    [WINDOW] = {"window", 2, COMM_P2P, MASK_CAUSAL, .window = 40},
    [BOTTOM_RIGHT] = {"bottom", 2, COMM_P2P, MASK_CAUSAL_BOTTOM_RIGHT, .keys_more = 30},
    [BOTTOM_RIGHT_WINDOW] = {"bottom win", 2, COMM_P2P, MASK_NONE_BOTTOM_RIGHT, .window = 40,
                             .keys_more = 30},
    [UNEVEN] = {"uneven", 2, COMM_P2P, MASK_NONE, .seqlen = 191},
    [PACKED] = {"packed", 2, COMM_P2P, MASK_CAUSAL, .format = FORMAT_THD, .lengths = {101, 150}},
    [PADDED] = {"padded", 2, COMM_P2P, MASK_NONE, .lengths = {101, 150}},
    [SINKS] = {"sinks", 2, COMM_P2P, MASK_CAUSAL, .softmax = SOFTMAX_LEARNABLE, .softcap = 8,
               .max_logit = true},
    [BIAS_OWN] = {"bias bhss", 2, COMM_P2P, MASK_NONE, .bias = BIAS_BHSS},
    [BIAS_SHARED] = {"bias 1h1s", 2, COMM_A2A, MASK_CAUSAL, .bias = BIAS_1H1S},
    [PACKED_WINDOW] = {"packed win", 2, COMM_P2P, MASK_CAUSAL, .format = FORMAT_THD,
                       .lengths = {101, 150}, .window = 40},
    [EMPTY_ROWS] = {"empty rows", 2, COMM_P2P, MASK_CAUSAL_BOTTOM_RIGHT, .keys_more = -30},
    [SINKS_8] = {"sinks", 8, COMM_P2P, MASK_CAUSAL, .softmax = SOFTMAX_LEARNABLE},
    [OFF_BY_ONE] = {"off by one", 2, COMM_P2P, MASK_CAUSAL, .softmax = SOFTMAX_OFF_BY_ONE},
    [SATURATED] = {"saturated", 2, COMM_P2P, MASK_CAUSAL, .softcap = 3},
    [MASKED_RANK] = {"masked", 2, COMM_P2P, MASK_CAUSAL_BOTTOM_RIGHT, .keys_more = -100,
                     .sharding = SHARDING_CONTIGUOUS},
    [UNSEEN_KEYS] = {"unseen", 2, COMM_P2P, MASK_CAUSAL, .keys_more = 30},
    [SINGLE] = {"fp32", 2, COMM_P2P, MASK_CAUSAL, .dtype = DTYPE_FP32},
};

const char *variant_name(int variant)
{
    return variants[variant].name;
}

void variant_case(int variant, enum case_inputs inputs, struct cp_case *c)
{
    const struct variant *v = &variants[variant];
    case_init(c);
    c->world_size = v->world_size;
    c->comm = v->comm;
    c->mask = v->mask;
    c->inputs = inputs;
    c->batch = 1;
    c->heads = 4;
    c->kv_heads = 2;
    c->head_dim_qk = c->head_dim_v = 64;
    c->seqlen_q = inputs == INPUTS_TE ? 768 : v->seqlen ? v->seqlen : 192;
    c->seqlen_kv = c->seqlen_q + v->keys_more;
    if (v->lengths[0]) {
        c->batch = 2;
        case_list_set(c, LIST_LENGTHS_Q, v->lengths, 2);
    }
    if (v->format)
        c->format = v->format;
    if (v->window)
        c->window_left = v->window;
    if (v->softmax)
        c->softmax = v->softmax;
    if (v->bias)
        c->bias = v->bias;
    if (v->sharding)
        c->sharding = v->sharding;
    if (v->dtype)
        c->dtype = v->dtype;
    c->softcap = v->softcap;
    c->max_logit = v->max_logit;
}

// ---- where errors show ----

#define ON(variant) (UINT32_C(1) << (variant))
#define PLAIN       (ON(PLAIN_CAUSAL) | ON(PLAIN_FULL) | ON(PLAIN_CAUSAL_4) | ON(PLAIN_FULL_4))
#define MASKED      (ON(PLAIN_CAUSAL) | ON(PLAIN_CAUSAL_4))
#define ALL         (ON(VARIANTS) - 1)
#define ONE_STEP    (ON(ULYSSES) | ON(BIAS_SHARED)) // nothing is merged
#define WITH_SINKS  (ON(SINKS) | ON(SINKS_8))

#define OUT     (UINT32_C(1) << TENSOR_OUT)
#define LSE     (UINT32_C(1) << TENSOR_LSE)
#define DQ      (UINT32_C(1) << TENSOR_DQ)
#define DK      (UINT32_C(1) << TENSOR_DK)
#define DV      (UINT32_C(1) << TENSOR_DV)
#define DBIAS   (UINT32_C(1) << TENSOR_DBIAS)
#define DSINK   (UINT32_C(1) << TENSOR_DSINK)
#define MAXIMUM (UINT32_C(1) << TENSOR_MAX_LOGIT)

#define GRADIENTS  (DQ | DK | DV)
// Other keys or masks change all of these.
#define EVERYTHING (OUT | LSE | GRADIENTS)

#define SHOWS(name, cases, tensors, more)                                                          \
    {                                                                                              \
        .mutation = (name), .variants = (cases), .shows = (tensors), .may = (more)                 \
    }
#define REFUSED(name, cases, sentence)                                                             \
    {                                                                                              \
        .mutation = (name), .variants = (cases), .refused = (sentence)                             \
    }

const struct expectation expectations[] = {
    // masks
    SHOWS("MASK_OFF_BY_ONE", MASKED, EVERYTHING, 0),
    SHOWS("SWAP_CHUNKS", MASKED, EVERYTHING, 0),
    SHOWS("WINDOW_OFF_BY_ONE", ON(WINDOW), EVERYTHING, 0),
    SHOWS("WINDOW_PACKED", ON(PACKED_WINDOW), EVERYTHING, 0),
    SHOWS("BOTTOM_RIGHT_TOP_LEFT", ON(BOTTOM_RIGHT) | ON(BOTTOM_RIGHT_WINDOW), EVERYTHING, 0),
    SHOWS("DIAGONAL_OF_LAST_CHUNK", MASKED, EVERYTHING, 0),
    SHOWS("SEQUENCE_BOUNDARY", ON(PACKED), EVERYTHING, 0),
    SHOWS("CHUNK_ROUNDED_DOWN", ON(UNEVEN) | ON(PADDED), EVERYTHING, 0),
    SHOWS("CHUNK_ROUNDED_DOWN", ON(PACKED), LSE, OUT | GRADIENTS),
    SHOWS("PADDING_KEY_SEEN", ON(PADDED), EVERYTHING, 0),
    SHOWS("BIAS_LOCAL_COLUMN", ON(BIAS_OWN), EVERYTHING | DBIAS, 0),
    SHOWS("BIAS_COLUMN_SHIFTED", ON(BIAS_OWN), EVERYTHING | DBIAS, 0),
    SHOWS("WINDOW_IGNORED", ON(WINDOW) | ON(PACKED_WINDOW), EVERYTHING, 0),
    SHOWS("WINDOW_IGNORED_REMOTE", ON(WINDOW), EVERYTHING, 0),
    SHOWS("WINDOW_FORWARD_ONLY", ON(WINDOW), GRADIENTS, 0),
    SHOWS("RANKS_SWAPPED", MASKED, EVERYTHING, 0),
    SHOWS("PACKED_POSITIONS", ON(PACKED), EVERYTHING, 0),
    SHOWS("QUERY_CHUNK_LOST", PLAIN, EVERYTHING, 0),
    SHOWS("TAIL_KEYS_DROPPED", ON(UNEVEN), EVERYTHING, 0),
    SHOWS("KEY_DROPPED", PLAIN, EVERYTHING, 0),
    SHOWS("BIAS_ROW_SHIFTED", ON(BIAS_OWN), EVERYTHING | DBIAS, 0),
    // computation of the steps
    SHOWS("DROP_STEP", PLAIN, EVERYTHING, 0),
    SHOWS("STALE_SLOT", PLAIN, EVERYTHING, 0),
    SHOWS("LSE_PARTIAL", PLAIN, GRADIENTS, 0),
    SHOWS("DROP_DQ_STEP", PLAIN, DQ, 0),
    SHOWS("STALE_SUM", PLAIN, DQ, 0),
    SHOWS("DROP_DKV_ADD", PLAIN, DK | DV, 0),
    SHOWS("HOP_DROPS_CHUNK", PLAIN, DK | DV, 0),
    SHOWS("GATHER_DROP_PART", ON(GATHER), DK | DV, 0),
    SHOWS("A2A_DROP_MEMBER", ON(ULYSSES) | ON(HIERARCHICAL), DK | DV, 0),
    SHOWS("REPLICATED_KV_LOST", ON(ULYSSES), DK | DV, 0),
    SHOWS("STALE_RING_KV", PLAIN, GRADIENTS, 0),
    SHOWS("KV_TRANSPOSED", PLAIN, GRADIENTS, 0),
    SHOWS("V_IS_K", PLAIN, DQ | DK, 0),
    SHOWS("OWN_ATTENDED_TWICE", PLAIN, EVERYTHING, 0),
    SHOWS("BACKWARD_STEP_TWICE", PLAIN, GRADIENTS, 0),
    SHOWS("WORLD_FACTOR", ON(PLAIN_CAUSAL) | ON(GATHER) | ON(ULYSSES), DK | DV, 0),
    SHOWS("D_TOO_EARLY", PLAIN | ON(GATHER), DQ | DK, 0),
    SHOWS("OUT_TOO_EARLY", PLAIN | ON(GATHER), OUT, 0),
    SHOWS("DKV_TOO_EARLY", PLAIN | ON(GATHER), DK | DV, 0),
    SHOWS("DKV_TOO_EARLY", ON(ULYSSES), DV, 0), // dV is added last
    // messages
    SHOWS("DK_WRONG_OWNER", PLAIN, DK | DV, 0),
    SHOWS("GATHER_WRONG_OWNER", ON(GATHER), DK | DV, 0),
    SHOWS("A2A_WRONG_HEADS", ON(ULYSSES) | ON(HIERARCHICAL), EVERYTHING, 0),
    SHOWS("DK_ONE_HOP_SHORT", PLAIN, DK, 0),
    SHOWS("SENT_CHUNKS_SWAPPED", MASKED, EVERYTHING, 0),
    SHOWS("SENT_CHUNKS_SWAPPED", ON(PLAIN_FULL) | ON(PLAIN_FULL_4), DK | DV, 0),
    SHOWS("RING_REVERSED", ON(PLAIN_CAUSAL_4), EVERYTHING, 0),
    SHOWS("RING_REVERSED", ON(PLAIN_FULL_4), GRADIENTS, 0),
    SHOWS("OUT_HOME_TURNED", ON(ULYSSES) | ON(HIERARCHICAL), OUT, 0),
    SHOWS("LSE_HOME_TURNED", ON(ULYSSES) | ON(HIERARCHICAL), LSE, 0),
    SHOWS("DQ_HOME_TURNED", ON(ULYSSES) | ON(HIERARCHICAL), DQ, 0),
    // initial values, sinks, bias and the largest logit
    SHOWS("SINK_DROPPED", ON(SINKS), EVERYTHING | DSINK, 0),
    SHOWS("EMPTY_ROW_FINITE", ON(EMPTY_ROWS), LSE, 0),
    SHOWS("PADDING_NOT_ZERO", ON(PADDED), OUT, 0),
    SHOWS("SUM_DROPS_RANK", WITH_SINKS, DSINK | MAXIMUM, 0),
    SHOWS("MAX_OWN_SHARD", ON(SINKS), MAXIMUM, 0),
    SHOWS("SINK_GRAD_ONE_RANK", WITH_SINKS, DSINK, 0),
    SHOWS("DBIAS_DROPS_RANK", ON(BIAS_SHARED), DBIAS, 0),
    SHOWS("DBIAS_STEP_LOST", ON(BIAS_OWN), DBIAS, 0),
    SHOWS("PADDING_NOT_ZERO", ON(EMPTY_ROWS) | ON(MASKED_RANK), OUT, 0),
    SHOWS("MASKED_RANK_NAN", ON(EMPTY_ROWS) | ON(MASKED_RANK), OUT, 0),
    SHOWS("EMPTY_ROW_DQ", ON(EMPTY_ROWS) | ON(MASKED_RANK), DQ, 0),
    SHOWS("UNSEEN_KEY_DK", ON(UNSEEN_KEYS), DK, 0),
    SHOWS("OFF_BY_ONE_DROPPED", ON(OFF_BY_ONE), EVERYTHING, 0),
    SHOWS("LSE_TOO_LARGE", PLAIN, LSE | GRADIENTS, 0),
    SHOWS("SINK_GRAD_TWICE", WITH_SINKS, DSINK, 0),
    SHOWS("DBIAS_TWICE", ON(BIAS_SHARED), DBIAS, 0),
    SHOWS("DBIAS_TWO_ZEROED", ON(BIAS_SHARED), DBIAS, 0),
    SHOWS("MAX_STEP_LOST", ON(SINKS), MAXIMUM, 0),
    // only for the checker
    REFUSED("SLOTS_SHARED", ON(PLAIN_CAUSAL_4), "nothing orders them"),
    REFUSED("MESSAGE_SHORT", PLAIN | ON(GATHER), "which receives"),
    REFUSED("EXCHANGE_MISSING", PLAIN | ON(GATHER) | ON(ULYSSES), ""),
    REFUSED("EXCHANGE_EXTRA", PLAIN | ON(GATHER) | ON(ULYSSES), "another rank has more"),
    REFUSED("MASKED_RANK_UNWRITTEN", ON(MASKED_RANK), "is not written completely"),
    REFUSED("LSE_UNSTARTED", ALL & ~ON(MASKED_RANK), "reads what nothing has written"),
    // arithmetic
    SHOWS("MERGE_WITHOUT_LSE", ALL & ~ONE_STEP, OUT | DQ | DK, DBIAS | DSINK),
    SHOWS("SCALE_5_PERCENT", ALL, EVERYTHING | DBIAS | DSINK | MAXIMUM, 0),
    SHOWS("ROWDOT_ZERO", ALL, DQ | DK | DBIAS | DSINK, 0),
    SHOWS("GQA_WRONG_HEAD", PLAIN, EVERYTHING, 0),
    SHOWS("CONVERT_TRUNCATES", ALL, OUT | DQ | DV, DBIAS),
    SHOWS("SINK_TWICE", ON(SINKS), EVERYTHING | DSINK, 0),
    SHOWS("SINK_GRAD_SIGN", ON(SINKS), DSINK, 0),
    SHOWS("BIAS_SCALED", ON(BIAS_OWN) | ON(BIAS_SHARED), EVERYTHING | DBIAS, 0),
    SHOWS("SOFTCAP_SLOPE", ON(SINKS), DQ | DK, 0),
    SHOWS("MAX_BASE_2", ON(SINKS), MAXIMUM, 0),
    SHOWS("RAGGED_TILE", ON(UNEVEN) | ON(PACKED), DK | DV, 0),
    SHOWS("HEAD_GROUP_LOST", PLAIN, DV, 0),
    SHOWS("DK_UNSCALED", PLAIN, DK, 0),
    SHOWS("DBIAS_OVERWRITTEN", ON(BIAS_SHARED), DBIAS, 0),
    SHOWS("SCALE_HALF_PERCENT", PLAIN | ON(WINDOW), OUT | LSE | DQ, DK | DV),
    SHOWS("RESULTS_HALF_PERCENT", ON(PLAIN_CAUSAL) | ON(PLAIN_FULL) | ON(PLAIN_FULL_4) | ON(WINDOW),
          OUT | GRADIENTS, 0),
    // In chunks of 24 rows half a percent is the limit of dk's slope: rounding decides.
    SHOWS("RESULTS_HALF_PERCENT", ON(PLAIN_CAUSAL_4), OUT | DQ | DV, DK),
    SHOWS("LOAD_LOSES_BIT", PLAIN, OUT | LSE | DQ, DK | DV),
    SHOWS("TF32_PRODUCTS", ON(SINGLE), EVERYTHING, 0),
    SHOWS("SLOPE_NEAR_SATURATION", ON(SATURATED), DQ | DK, 0),
};
const int expectations_count = sizeof expectations / sizeof *expectations;
