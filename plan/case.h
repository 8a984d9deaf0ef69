// SPDX-License-Identifier: Apache-2.0
// The case: what to compute and check. Plain data without pointers, so that it can be copied
// between the processes of one build. Everything a result depends on is in here.
#ifndef CPATTN_PLAN_CASE_H
#define CPATTN_PLAN_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"
#include "plan/dtype.h"

// In every enum 0 means unspecified and is refused by case_check().

// BSHD and SBHD have `batch` sequences of equal size; THD packs sequences of different sizes one
// after the other.
enum case_format { FORMAT_BSHD = 1, FORMAT_SBHD, FORMAT_THD };
// How ranks exchange keys. P2P: keys and values go round a ring. ALL_GATHER: each rank collects all
// keys and values. A2A (Ulysses): ranks exchange tokens for heads. A2A_P2P: A2A inside groups of
// a2a_size consecutive ranks, and a ring of groups. AUTO: one of these, chosen by the hosts
// (team_comm()).
enum case_comm { COMM_P2P = 1, COMM_ALL_GATHER, COMM_A2A, COMM_A2A_P2P, COMM_AUTO };
enum case_sharding { SHARDING_ZIGZAG = 1, SHARDING_CONTIGUOUS };

// Which keys a query sees, and the diagonal for windows. The diagonal assigns key i to query i with
// NONE and CAUSAL, and key i + keys - queries with the others, which align the last key with the
// last query; padding does not count. CAUSAL and CAUSAL_BOTTOM_RIGHT hide all keys after the
// diagonal.
enum case_mask { MASK_NONE = 1, MASK_CAUSAL, MASK_CAUSAL_BOTTOM_RIGHT, MASK_NONE_BOTTOM_RIGHT };

// OFF_BY_ONE adds 1 to the denominator, like a key with logit 0 and value 0; LEARNABLE adds
// exp(sink[head]) with an input `sink`.
enum case_softmax { SOFTMAX_VANILLA = 1, SOFTMAX_OFF_BY_ONE, SOFTMAX_LEARNABLE };

// Shape of the bias of the scaled logits: [batch][heads][seqlen_q][seqlen_kv]; a 1 in the name is a
// broadcast dimension.
enum case_bias {
    BIAS_NONE = 1,
    BIAS_111S,
    BIAS_11SS,
    BIAS_1H1S,
    BIAS_1HSS,
    BIAS_B11S,
    BIAS_B1SS,
    BIAS_BH1S,
    BIAS_BHSS
};

// How much of the results is compared with the reference. OFF: nothing; the case is only run and
// timed, and the verdict is neither pass nor fail. AUTO: every element, or a sample of a large
// case. FULL: every element.
enum case_verify { VERIFY_OFF = 1, VERIFY_AUTO, VERIFY_FULL };

// SHARP draws Q so that the scaled logits deviate by about CASE_SHARP_DEVIATION; TE draws as
// TransformerEngine's tests: unit normal clamped to [-1, 1].
enum case_inputs { INPUTS_SHARP = 1, INPUTS_TE };
#define CASE_SHARP_DEVIATION 4

#define WINDOW_UNBOUNDED      (-1)
#define CASE_A2A_SIZE_DEFAULT 2
#define LSE_TOLERANCE_MAX     0.01

// Query tokens, and key/value tokens.
enum shard_side { SIDE_Q, SIDE_KV };

// Lists with one number for each sequence, or empty.
enum case_list { LIST_LENGTHS_Q, LIST_LENGTHS_KV, LIST_PADDED_Q, LIST_PADDED_KV, CASE_LISTS };

struct input_source;

struct cp_case {
    char model[MODEL_NAME_MAX]; // a label for people; printable ASCII, may be empty

    // The program of the ranks: the name of a guest of the daemon, or "" for the daemon's own,
    // which is "cpattn" as text.
    char implementation[IMPLEMENTATION_NAME_MAX];

    int32_t world_size; // 1..WORLD_SIZE_MAX
    enum case_comm comm;
    int32_t a2a_size; // ranks of a group with A2A_P2P, a divisor of world_size; else its default
    enum case_sharding sharding;
    // Number of hosts over which the daemon spreads the ranks evenly, and ranks on each. 0: any.
    // The results do not depend on them.
    int32_t nodes, ranks_per_node;

    enum case_dtype dtype;
    enum case_format format;
    int32_t batch;       // 1..BATCH_MAX
    int32_t heads;       // 1..HEADS_MAX, a multiple of kv_heads
    int32_t kv_heads;    // 1..HEADS_MAX
    int32_t head_dim_qk; // 1..HEAD_DIM_MAX
    int32_t head_dim_v;  // 1..HEAD_DIM_MAX
    int64_t seqlen_q;    // tokens of a sequence over all ranks, 0..SEQLEN_MAX, divisible or not;
    int64_t seqlen_kv;   // with lists of lengths the upper bound of a length

    int32_t pad_multiple; // THD without lists of padded lengths: sequences occupy a multiple of
                          // this; else 1

    enum case_mask mask;
    int64_t window_left;  // keys visible left of the diagonal, or WINDOW_UNBOUNDED
    int64_t window_right; // keys visible right of the diagonal; a causal mask makes it 0
    double scale;         // of the logits; 0 means 1/sqrt(head_dim_qk)
    double softcap;       // logit = softcap * tanh(logit / softcap) after the scale; 0: none
    double lse_tolerance; // error of LSE accepted in addition to its limit, 0..LSE_TOLERANCE_MAX
    enum case_softmax softmax;
    enum case_bias bias; // added after scale and softcap
    bool max_logit;      // also deliver the largest logit of each head

    char provider[PROVIDER_NAME_MAX]; // provider of the attention kernels; "": the daemon's own
    bool provider_fallback; // own kernels compute operations that the provider does not support

    bool training;        // forward and backward, or forward only
    bool deterministic;   // false: rounding may differ between runs
    bool operation_times; // each rank reports when each operation of its plan ran
    bool graph;           // ranks capture their plans as CUDA graphs and launch these; only on GPUs
    enum case_verify verify;
    enum case_inputs inputs;
    uint64_t seed; // of the inputs

    uint64_t explore_seed; // 0: run in plan order; else in the legal order drawn from this seed

    // The lists one after the other in the order of enum case_list, followed by zeros; read with
    // case_list(), write with case_list_set().
    int32_t list_count[CASE_LISTS]; // 0 or batch
    int32_t list_values[CASE_LISTS * SEQUENCES_MAX];

    // Source of given inputs (judge/source.h); NULL: inputs are drawn. Valid in one process: it is
    // not sent, hashed or compared.
    const struct input_source *source;
};

// The default case: 2 ranks, p2p, zigzag, bf16, bshd, batch 2, 8 heads of 128, 512 tokens, causal,
// training, verified, sharp inputs, seed 1234, no other features, no lists.
void case_init(struct cp_case *c);

// OK, or the reason of a refusal. INVALID_ARGUMENT: a field is outside its range, or fields
// contradict each other. UNIMPLEMENTED: valid, but not supported. RESOURCE_EXHAUSTED: a size that
// no machine has. Only this function decides what is supported; library, command, daemon and rank
// call it. plan/support.h has its list.
enum status case_check(const struct cp_case *c, struct error *error) MUST_CHECK;

// The checks of single fields in case_check(): ranges and choices.
enum status case_check_fields(const struct cp_case *c, struct error *error) MUST_CHECK;

// ---- lists and copies ----

// The values of a list, *count of them.
const int32_t *case_list(const struct cp_case *c, enum case_list list, int32_t *count);

// Replaces a list by a copy of `count` values, 0..SEQUENCES_MAX.
void case_list_set(struct cp_case *c, enum case_list list, const int32_t *values, int32_t count);

// True if every list has 0..SEQUENCES_MAX numbers. Otherwise lists must not be read;
// case_check_fields() checks this.
bool case_lists_fit(const struct cp_case *c);

// Number of bytes of the case that are in use; all bytes after them are zero and need not be stored
// or sent.
size_t case_bytes(const struct cp_case *c);

// Restores a case from its first `size` bytes. DATA_LOSS: they are not the complete case.
enum status case_load(struct cp_case *c, const void *bytes, size_t size,
                      struct error *error) MUST_CHECK;

// ---- fields by name ----
// One table defines the command's options, the keys of a matrix file, the printing of a case and
// the messages about a case.

struct case_choice {
    const char *name; // NULL ends the list
    int value;
};

enum case_field_kind {
    FIELD_TEXT,
    FIELD_CHOICE,
    FIELD_INT,
    FIELD_UINT,
    FIELD_REAL,
    FIELD_BOOL,
    FIELD_LIST
};

// Bytes of the longest value as text, with its NUL: SEQUENCES_MAX numbers of 8 digits with commas.
#define CASE_VALUE_MAX (9 * SEQUENCES_MAX + 1)

struct case_field {
    const char *name; // such as "head_dim_qk"; also the name on the wire and in the library
    enum case_field_kind kind;
    enum case_list list; // FIELD_LIST only
    size_t offset;       // in struct cp_case; of a list the offset of its count
    size_t size;         // bytes of the member
    int64_t min, max;    // FIELD_INT, and the numbers of a FIELD_LIST; a FIELD_UINT has no limits
    double real_min, real_max;         // FIELD_REAL
    const struct case_choice *choices; // FIELD_CHOICE only
    // FIELD_CHOICE: additional names, which are read but not written; FIELD_TEXT: the name of "";
    // or NULL.
    const struct case_choice *aliases;
    const char *help; // one line
};

// The table; ends with a NULL name.
const struct case_field *case_fields(void);

// Writes the accepted values, such as "1 to 64" or "bf16, fp16 or fp32". Returns the length as
// snprintf does.
#define CASE_ACCEPTED_MAX 160
int case_accepted(const struct case_field *field, char *text, size_t size);

// The field of that name, or NULL. '-' in the name counts as '_', for options.
const struct case_field *case_field_find(const char *name);

// Names that set two fields at once: `seqlen` (seqlen_q and seqlen_kv) and `head_dim` (head_dim_qk
// and head_dim_v).
#define CASE_PAIR 2
struct case_pair {
    const char *name;
    const char *members[CASE_PAIR];
    const char *help;
};
const struct case_pair *case_pairs(void);                 // ends with a NULL name
const struct case_pair *case_pair_find(const char *name); // as case_field_find()

// For messages about unknown names: offers to `nearest` the names that other programs use for a
// field, such as `is_causal` for `mask`.
struct nearest;
void case_names_offer(struct nearest *nearest);

// Sets a field or a pair from text: "bf16", "4096", "true" or "false", a list as "2794,3301" or "".
// Integers are plain decimal; numbers of tokens may end in k or m: 16k is 16384. INVALID_ARGUMENT:
// an unknown name, with the nearest known name; or a value that is not accepted, with the accepted
// ones. The case is then unchanged.
enum status case_set(struct cp_case *c, const char *name, const char *value,
                     struct error *error) MUST_CHECK;

// Writes the field's value as case_set() would read it. Returns the length as snprintf does.
int case_get(const struct cp_case *c, const struct case_field *field, char *text, size_t size);

// Name of a choice's value; "?": the value is not one of the choices.
const char *case_choice_name(const struct case_choice *choices, int value);
extern const struct case_choice case_dtype_choices[], case_dtype_aliases[], case_format_choices[],
    case_comm_choices[], case_sharding_choices[], case_mask_choices[], case_softmax_choices[],
    case_bias_choices[], case_implementation_aliases[], case_verify_choices[],
    case_inputs_choices[];

// One line that distinguishes a case from similar ones, such as "cp_1_0 bf16 bshd p2p w2 b2 h12
// s512 d128 causal". Two numbers if query and key side differ ("h32/4"). Returns the length as
// snprintf does.
int case_describe(const struct cp_case *c, char *text, size_t size);

// The command line that runs the case again: every field that differs from case_init(), such as
// "cpattn-submit case --world-size 4 --mask none", quoted for a shell; kv_heads if it differs from
// heads. Returns the length as snprintf does; CASE_COMMAND_MAX bytes suffice.
#define CASE_COMMAND_MAX (CASE_LISTS * CASE_VALUE_MAX + 2048)
int case_command(const struct cp_case *c, char *text, size_t size);

// ---- derived facts ----

// Tokens of a sequence; tokens that it occupies in memory over all ranks. The difference is
// padding, which follows the sequence's own tokens. Without lists a sequence has seqlen tokens and
// occupies seqlen tokens (BSHD, SBHD), or its length rounded up to pad_multiple (THD). A key side
// without lists and with the seqlen of the query side has the lengths of the query side.
int64_t case_length(const struct cp_case *c, enum shard_side side, int32_t sequence);
int64_t case_occupied(const struct cp_case *c, enum shard_side side, int32_t sequence);

// True if every sequence has seqlen tokens and no padding.
bool case_is_even(const struct cp_case *c, enum shard_side side);

bool case_is_causal(const struct cp_case *c);       // with either diagonal
bool case_is_bottom_right(const struct cp_case *c); // the diagonal ends at the last key
bool case_has_window(const struct cp_case *c);      // in addition to the mask

// The band of the mask in positions of a sequence: query i sees key j iff
// -left <= j - i + shift <= right, where shift aligns the last tokens of both sides with
// bottom-right masks. left and right may be SLICE_UNBOUNDED (plan/slice.h).
struct case_band {
    int64_t left, right, shift;
};
struct case_band case_band(const struct cp_case *c, int32_t sequence);

// Ranks on each host, if the case gives a placement; else all ranks.
int32_t case_ranks_per_node(const struct cp_case *c);

// The host of a rank, from 0, if the case gives a placement; else 0.
int32_t case_node(const struct cp_case *c, int32_t rank);

double case_scale(const struct cp_case *c);      // the scale with its default filled in
int case_element_bytes(const struct cp_case *c); // of Q, K, V, O and the gradients as delivered

// Upper bound of the bytes of one rank (the largest) for buffers and reference. RESOURCE_EXHAUSTED:
// more than 1 PiB. Needs fields that case_check_fields() admits.
enum status case_memory(const struct cp_case *c, int64_t *bytes, struct error *error) MUST_CHECK;

// A hash over all fields except the model label, with defaults filled in: cases that run the same
// computation have the same hash. It is the same on every machine.
uint64_t case_hash(const struct cp_case *c);

#endif
