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

// In every enum 0 means unspecified and is refused by case_check().
enum case_dtype { DTYPE_BF16 = 1, DTYPE_FP16, DTYPE_FP32 };
// BSHD and SBHD hold `batch` sequences of one size side by side, THD packs them one behind the
// other, each with a size of its own.
enum case_format { FORMAT_BSHD = 1, FORMAT_SBHD, FORMAT_THD };
// How a rank gets at the keys of others: P2P hands keys and values round a ring, ALL_GATHER
// collects them all, A2A (Ulysses) deals out heads instead of tokens, A2A_P2P deals out heads
// inside groups of a2a_size consecutive ranks and hands keys and values round a ring of groups.
// AUTO is one of these, chosen by the hosts (team_comm()).
enum case_comm { COMM_P2P = 1, COMM_ALL_GATHER, COMM_A2A, COMM_A2A_P2P, COMM_AUTO };
enum case_sharding { SHARDING_ZIGZAG = 1, SHARDING_CONTIGUOUS };

// Which keys a query sees, and where the diagonal is that a window is measured from: the key that
// stands opposite query i is key i with NONE and CAUSAL (the first opposite the first), key
// i + keys - queries with the others (the last opposite the last), both counted without padding.
// CAUSAL and CAUSAL_BOTTOM_RIGHT hide all keys behind the diagonal.
enum case_mask { MASK_NONE = 1, MASK_CAUSAL, MASK_CAUSAL_BOTTOM_RIGHT, MASK_NONE_BOTTOM_RIGHT };

// OFF_BY_ONE adds 1 to the denominator, as a key of logit 0 would that has no value; LEARNABLE adds
// exp(sink[head]) with an input `sink`.
enum case_softmax { SOFTMAX_VANILLA = 1, SOFTMAX_OFF_BY_ONE, SOFTMAX_LEARNABLE };

// What is added to the scaled logits: [batch][heads][seqlen_q][seqlen_kv], where a 1 in the name
// stands for one value for all of that dimension.
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

// How much of the results is compared with the reference: nothing (the case is run and timed only,
// and the verdict is neither pass nor fail), as much as pays, or every element.
enum case_verify { VERIFY_OFF = 1, VERIFY_AUTO, VERIFY_FULL };

// SHARP draws Q so that the scaled logits deviate by about CASE_SHARP_DEVIATION; TE draws as
// TransformerEngine's tests: unit normal clamped to [-1, 1].
enum case_inputs { INPUTS_SHARP = 1, INPUTS_TE };
#define CASE_SHARP_DEVIATION 4

#define WINDOW_UNBOUNDED      (-1)
#define CASE_A2A_SIZE_DEFAULT 2

// The two kinds of tokens.
enum shard_side { SIDE_Q, SIDE_KV };

// Lists of one number for each sequence, or of none.
enum case_list { LIST_LENGTHS_Q, LIST_LENGTHS_KV, LIST_PADDED_Q, LIST_PADDED_KV, CASE_LISTS };

struct input_source;

struct cp_case {
    char model[MODEL_NAME_MAX]; // a label for people; printable ASCII, may be empty

    // Whose ranks run it: a guest of the daemon by its name, or "", which is our own. As text the
    // latter is "cpattn".
    char implementation[IMPLEMENTATION_NAME_MAX];

    int32_t world_size; // 1..WORLD_SIZE_MAX
    enum case_comm comm;
    int32_t a2a_size; // ranks of a group with A2A_P2P, a divisor of world_size; else its default
    enum case_sharding sharding;
    // Hosts over which the daemon spreads the ranks, as many on each: how many, and how many ranks
    // are on each. 0: any. The results do not depend on them.
    int32_t nodes, ranks_per_node;

    enum case_dtype dtype;
    enum case_format format;
    int32_t batch;       // 1..BATCH_MAX
    int32_t heads;       // 1..HEADS_MAX, a multiple of kv_heads
    int32_t kv_heads;    // 1..HEADS_MAX
    int32_t head_dim_qk; // 1..HEAD_DIM_MAX
    int32_t head_dim_v;  // 1..HEAD_DIM_MAX
    int64_t seqlen_q;    // tokens of a sequence over all ranks, 0..SEQLEN_MAX; any number. The
    int64_t seqlen_kv;   // longest that is possible, where lists give lengths

    int32_t pad_multiple; // of what a sequence occupies in THD where no list says it; else 1

    enum case_mask mask;
    int64_t window_left;  // keys visible left of the diagonal, or WINDOW_UNBOUNDED
    int64_t window_right; // keys visible right of the diagonal; a causal mask makes it 0
    double scale;         // of the logits; 0 means 1/sqrt(head_dim_qk)
    double softcap;       // logit = softcap * tanh(logit / softcap) after the scale; 0: none
    enum case_softmax softmax;
    enum case_bias bias; // added last
    bool max_logit;      // deliver the largest logit of each head, too

    char provider[PROVIDER_NAME_MAX]; // whose kernels compute the attention; "": our own
    bool provider_fallback;           // our own compute what the provider does not support

    bool training;        // forward and backward, or forward only
    bool deterministic;   // false: the result may differ from run to run in rounding
    bool operation_times; // each rank reports when each operation of its plan ran
    bool graph;           // ranks capture their plans as CUDA graphs and replay these; only on GPUs
    enum case_verify verify;
    enum case_inputs inputs;
    uint64_t seed; // of the inputs

    uint64_t explore_seed; // 0: run in plan order; else in the legal order drawn from this seed

    // The lists, one behind the other in the order of enum case_list, zeros behind the last:
    // case_list() reads them and case_list_set() writes them.
    int32_t list_count[CASE_LISTS]; // 0 or batch
    int32_t list_values[CASE_LISTS * SEQUENCES_MAX];

    // Where inputs come from (judge/source.h); NULL: they are drawn. Of one process: a case that
    // travels, is hashed or compared is without it.
    const struct input_source *source;
};

// A sensible case to start from: 2 ranks, p2p, zigzag, bf16, bshd, batch 2, 8 heads of 128, 512
// tokens, causal, training, verified, sharp inputs, seed 1234, nothing unusual, no lists.
void case_init(struct cp_case *c);

// OK, or the reason why not: INVALID_ARGUMENT for a field outside its range or fields that
// contradict each other, UNIMPLEMENTED for what is sensible but not built, RESOURCE_EXHAUSTED for a
// size that no machine holds. This is the one place that decides what is supported; library,
// command, daemon and rank all call it. plan/support.h has its list.
enum status case_check(const struct cp_case *c, struct error *error) MUST_CHECK;

// The part of case_check() that looks at one field at a time: ranges and choices.
enum status case_check_fields(const struct cp_case *c, struct error *error) MUST_CHECK;

// ---- lists and copies ----

// The values of a list, *count of them.
const int32_t *case_list(const struct cp_case *c, enum case_list list, int32_t *count);

// Replaces a list by a copy of `count` values, 0..SEQUENCES_MAX.
void case_list_set(struct cp_case *c, enum case_list list, const int32_t *values, int32_t count);

// Whether every list has 0..SEQUENCES_MAX numbers. Of a case without that no list may be read; what
// case_check_fields() admits has it.
bool case_lists_fit(const struct cp_case *c);

// Bytes of the case that are in use: these first ones and zeros behind them are the whole case, so
// that no more has to be kept or sent.
size_t case_bytes(const struct cp_case *c);

// Makes a case of the first `size` bytes of another. DATA_LOSS when they are not all of it.
enum status case_load(struct cp_case *c, const void *bytes, size_t size,
                      struct error *error) MUST_CHECK;

// ---- fields by name ----
// One table drives the command's options, the keys of a matrix file, the printing of a case and the
// messages about one.

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

// Room for any value as text, with its NUL: SEQUENCES_MAX numbers of 8 digits, commas between them.
#define CASE_VALUE_MAX (9 * SEQUENCES_MAX + 1)

struct case_field {
    const char *name; // as in "head_dim_qk"; also the wire's and the library's word
    enum case_field_kind kind;
    enum case_list list; // FIELD_LIST only
    size_t offset;       // in struct cp_case; of a list its count's
    size_t size;         // bytes of the member
    int64_t min, max;    // FIELD_INT, FIELD_REAL, numbers of a FIELD_LIST; a FIELD_UINT takes all
    const struct case_choice *choices; // FIELD_CHOICE only
    // Of a FIELD_CHOICE more names that are read but never written, of a FIELD_TEXT one that stands
    // for ""; or NULL.
    const struct case_choice *aliases;
    const char *help; // one line
};

// The table; ends with a NULL name.
const struct case_field *case_fields(void);

// What the field accepts, as "1 to 64" or "bf16, fp16 or fp32". Returns the length as snprintf
// does.
#define CASE_ACCEPTED_MAX 160
int case_accepted(const struct case_field *field, char *text, size_t size);

// The field of that name, or NULL. '-' in the name reads as '_', so that options can be spelled
// with it.
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

// Sets a field or a pair from text: "bf16", "4096", "true" or "false", a list as "2794,3301" or "".
// Integers are plain decimal, nothing else, but that numbers of tokens may end in k or m: 16k is
// 16384. INVALID_ARGUMENT for an unknown name, with the nearest one if
// any is near, and for a malformed value or one outside the range, with what is accepted. The case
// is untouched then.
enum status case_set(struct cp_case *c, const char *name, const char *value,
                     struct error *error) MUST_CHECK;

// Writes the field's value as case_set() would read it. Returns the length as snprintf does.
int case_get(const struct cp_case *c, const struct case_field *field, char *text, size_t size);

// Name of a choice's value, or "?" where the value is none of the choices.
const char *case_choice_name(const struct case_choice *choices, int value);
extern const struct case_choice case_dtype_choices[], case_format_choices[], case_comm_choices[],
    case_sharding_choices[], case_mask_choices[], case_softmax_choices[], case_bias_choices[],
    case_implementation_aliases[], case_verify_choices[], case_inputs_choices[];

// One line that tells a case from its neighbours, as "cp_1_0 bf16 bshd p2p w2 b2 h12 s512 d128
// causal". Two numbers stand where query and key side differ ("h32/4"). Returns the length as
// snprintf does.
int case_describe(const struct cp_case *c, char *text, size_t size);

// The same case as a command line that reproduces it: every field that differs from case_init(), as
// "cpattn-submit case --world-size 4 --mask none", quoted for a shell; kv_heads where they are not
// as many as heads. Returns the length as
// snprintf does; CASE_COMMAND_MAX bytes are room for any.
#define CASE_COMMAND_MAX (CASE_LISTS * CASE_VALUE_MAX + 2048)
int case_command(const struct cp_case *c, char *text, size_t size);

// ---- derived facts ----

// Tokens of a sequence, and those it occupies in memory over all ranks: what is behind its tokens
// is padding, which is in no result. Where no list says anything, a sequence has seqlen tokens and
// occupies seqlen tokens (BSHD, SBHD) or its own, rounded up to pad_multiple (THD). A key side with
// no lists whose seqlen is that of the query side is as the query side.
int64_t case_length(const struct cp_case *c, enum shard_side side, int32_t sequence);
int64_t case_occupied(const struct cp_case *c, enum shard_side side, int32_t sequence);

// Whether every sequence has seqlen tokens and occupies no more.
bool case_is_even(const struct cp_case *c, enum shard_side side);

bool case_is_causal(const struct cp_case *c);       // of either diagonal
bool case_is_bottom_right(const struct cp_case *c); // the diagonal ends at the last key
bool case_has_window(const struct cp_case *c);      // besides what the mask hides

// The band of the mask in positions of a sequence: query i sees key j iff
// -left <= j - i + shift <= right, where shift is added for bottom-right alignment, which is of the
// last token of the sequence on each side. left/right are SLICE_UNBOUNDED (plan/slice.h) where
// nothing bounds them.
struct case_band {
    int64_t left, right, shift;
};
struct case_band case_band(const struct cp_case *c, int32_t sequence);

// Ranks on each host, where the case says how they are placed; else all.
int32_t case_ranks_per_node(const struct cp_case *c);

// The host of a rank, from 0, where the case says how ranks are placed; else all are on host 0.
int32_t case_node(const struct cp_case *c, int32_t rank);

double case_scale(const struct cp_case *c);      // the scale with its default filled in
int case_element_bytes(const struct cp_case *c); // of Q, K, V, O and the gradients as delivered

// Bytes one rank (the largest) needs for buffers and reference. An upper bound, made before
// anything is reserved. RESOURCE_EXHAUSTED when it is beyond 1 PiB. Needs fields that
// case_check_fields() admits.
enum status case_memory(const struct cp_case *c, int64_t *bytes, struct error *error) MUST_CHECK;

// A hash over all fields but the model label, defaults filled in: two cases that run the same thing
// have the same hash. It is the same on every machine.
uint64_t case_hash(const struct cp_case *c);

#endif
