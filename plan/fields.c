// SPDX-License-Identifier: Apache-2.0
// The fields of a case by name: the table and everything that is driven by it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "plan/case.h"
#include "plan/number.h"

const struct case_choice case_dtype_choices[] = {
    {"bf16", DTYPE_BF16}, {"fp16", DTYPE_FP16}, {"fp32", DTYPE_FP32}, {NULL, 0}};
const struct case_choice case_format_choices[] = {
    {"bshd", FORMAT_BSHD}, {"sbhd", FORMAT_SBHD}, {"thd", FORMAT_THD}, {NULL, 0}};
const struct case_choice case_comm_choices[] = {{"p2p", COMM_P2P},
                                                {"all_gather", COMM_ALL_GATHER},
                                                {"a2a", COMM_A2A},
                                                {"a2a+p2p", COMM_A2A_P2P},
                                                {NULL, 0}};
const struct case_choice case_sharding_choices[] = {
    {"zigzag", SHARDING_ZIGZAG}, {"contiguous", SHARDING_CONTIGUOUS}, {NULL, 0}};
const struct case_choice case_mask_choices[] = {{"none", MASK_NONE},
                                                {"causal", MASK_CAUSAL},
                                                {"causal_bottom_right", MASK_CAUSAL_BOTTOM_RIGHT},
                                                {"none_bottom_right", MASK_NONE_BOTTOM_RIGHT},
                                                {NULL, 0}};
// TransformerEngine's words. Padding is what lengths say here, so that a word that says it in the
// mask means the same as one that does not.
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
static const struct case_choice implementation_aliases[] = {{"cpattn", 0}, {NULL, 0}};
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
#define INT(field, low, high, text)  ENTRY(field, FIELD_INT, .min = low, .max = high, .help = text)
#define UINT(field, text)            ENTRY(field, FIELD_UINT, .help = text)
#define REAL(field, low, high, text) ENTRY(field, FIELD_REAL, .min = low, .max = high, .help = text)
#define BOOL(field, text)            ENTRY(field, FIELD_BOOL, .help = text)
#define LIST(field, which, text)                                                                   \
    {                                                                                              \
        .name = #field, .kind = FIELD_LIST,                                                        \
        .offset = offsetof(struct cp_case, list_count) + (which) * sizeof(int32_t),                \
        .size = sizeof(int32_t), .max = SEQLEN_MAX, .list = which, .help = text                    \
    }

// What a sequence is padded to; more than a page of tokens serves no machine.
#define PAD_MULTIPLE_MAX 65536

static const struct case_field field_table[] = {
    TEXT(model, "label of the case for people"),
    ENTRY(implementation, FIELD_TEXT, .aliases = implementation_aliases,
          .help = "whose ranks run it: cpattn, or a guest of the daemon"),
    INT(world_size, 1, WORLD_SIZE_MAX, "ranks that share the sequence"),
    CHOICE(comm, case_comm_choices, "how keys and values travel between ranks"),
    INT(a2a_size, 1, WORLD_SIZE_MAX, "ranks that deal out heads among themselves in a2a+p2p"),
    CHOICE(sharding, case_sharding_choices, "how a sequence is dealt to ranks"),
    CHOICE(dtype, case_dtype_choices, "element type of inputs and results"),
    CHOICE(format, case_format_choices, "memory order of batch and sequence"),
    INT(batch, 1, BATCH_MAX, "sequences"),
    INT(heads, 1, HEADS_MAX, "query heads, a multiple of kv_heads"),
    INT(kv_heads, 1, HEADS_MAX, "key and value heads"),
    INT(head_dim_qk, 1, HEAD_DIM_MAX, "head dimension of queries and keys"),
    INT(head_dim_v, 1, HEAD_DIM_MAX, "head dimension of values and outputs"),
    INT(seqlen_q, 0, SEQLEN_MAX, "queries of a sequence over all ranks"),
    INT(seqlen_kv, 0, SEQLEN_MAX, "keys of a sequence over all ranks"),
    LIST(lengths_q, LIST_LENGTHS_Q, "queries of each sequence, none: seqlen_q"),
    LIST(lengths_kv, LIST_LENGTHS_KV, "keys of each sequence, none: as the queries, or seqlen_kv"),
    LIST(padded_q, LIST_PADDED_Q, "queries that each sequence occupies in thd"),
    LIST(padded_kv, LIST_PADDED_KV, "keys that each sequence occupies in thd"),
    INT(pad_multiple, 1, PAD_MULTIPLE_MAX, "multiple that thd pads to where no list says it"),
    ALIASED(mask, "which keys a query sees"),
    INT(window_left, WINDOW_UNBOUNDED, SEQLEN_MAX, "keys seen left of the diagonal, -1: all"),
    INT(window_right, WINDOW_UNBOUNDED, SEQLEN_MAX, "keys seen right of the diagonal, -1: all"),
    REAL(scale, 0, 1000000, "factor of the logits, 0: 1/sqrt(head_dim_qk)"),
    REAL(softcap, 0, 1000000, "bound of the logits, smooth, 0: none"),
    ALIASED(softmax, "what stands in the denominator beside the keys"),
    ALIASED(bias, "shape of what is added to the logits"),
    BOOL(max_logit, "deliver the largest logit of each head (true) or not (false)"),
    TEXT(provider, "whose kernels compute the attention, as describe lists them, none: our own"),
    BOOL(provider_fallback, "our own kernels do what the provider does not (true) or none (false)"),
    BOOL(training, "forward and backward (true) or forward only (false)"),
    BOOL(deterministic, "the same bits in each run (true) or not necessarily (false)"),
    ALIASED(verify, "how much is compared with the reference"),
    CHOICE(inputs, case_inputs_choices, "distribution of the inputs"),
    UINT(seed, "seed of the inputs"),
    UINT(explore_seed, "0: plan order, else a legal order drawn from this seed"),
    {.name = NULL},
};

const struct case_field *case_fields(void)
{
    return field_table;
}

static bool name_equal(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != *b)
            return false;
    return *a == *b;
}

static const struct case_pair pair_table[] = {
    {"seqlen", {"seqlen_q", "seqlen_kv"}, "seqlen_q and seqlen_kv at once"},
    {"head_dim", {"head_dim_qk", "head_dim_v"}, "head_dim_qk and head_dim_v at once"},
    {NULL, {NULL}, NULL},
};

const struct case_pair *case_pairs(void)
{
    return pair_table;
}

const struct case_pair *case_pair_find(const char *name)
{
    for (const struct case_pair *pair = pair_table; pair->name; pair++)
        if (name_equal(name, pair->name))
            return pair;
    return NULL;
}

const struct case_field *case_field_find(const char *name)
{
    for (const struct case_field *field = field_table; field->name; field++)
        if (name_equal(name, field->name))
            return field;
    return NULL;
}

const char *case_choice_name(const struct case_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value)
            return choices->name;
    return "?";
}

// ---- members
// ----------------------------------------------------------------------------------------

static int64_t load_int(const struct cp_case *c, const struct case_field *field)
{
    const char *member = (const char *)c + field->offset;
    if (field->size == sizeof(int32_t)) {
        int32_t value;
        memcpy(&value, member, sizeof value);
        return value;
    }
    int64_t value;
    memcpy(&value, member, sizeof value);
    return value;
}

static void store_int(struct cp_case *c, const struct case_field *field, int64_t value)
{
    char *member = (char *)c + field->offset;
    int32_t narrow = (int32_t)value;
    if (field->size == sizeof narrow)
        memcpy(member, &narrow, sizeof narrow);
    else
        memcpy(member, &value, sizeof value);
}

static double load_real(const struct cp_case *c, const struct case_field *field)
{
    double value;
    memcpy(&value, (const char *)c + field->offset, sizeof value);
    return value;
}

static bool load_bool(const struct cp_case *c, const struct case_field *field)
{
    return *((const unsigned char *)c + field->offset) != 0;
}

// ---- what is accepted
// -------------------------------------------------------------------------------

#define QUOTED_MAX 48
#define HINT_MAX   64

static int print_choices(const struct case_field *field, char *text, size_t size)
{
    size_t length = 0;
    for (const struct case_choice *choice = field->choices; choice->name; choice++) {
        const char *joint = choice == field->choices ? "" : choice[1].name ? ", " : " or ";
        bool room = length < size;
        length += (size_t)snprintf(room ? text + length : NULL, room ? size - length : 0, "%s%s",
                                   joint, choice->name);
    }
    return (int)length;
}

int case_accepted(const struct case_field *field, char *text, size_t size)
{
    long long min = field->min, max = field->max;
    switch (field->kind) {
    case FIELD_TEXT:
        return snprintf(text, size, "up to %zu printable ASCII characters", field->size - 1);
    case FIELD_CHOICE:
        return print_choices(field, text, size);
    case FIELD_INT:
        return snprintf(text, size, "%lld to %lld", min, max);
    case FIELD_UINT:
        return snprintf(text, size, "a whole number from 0 to 18446744073709551615");
    case FIELD_REAL:
        return snprintf(text, size, "a number from %lld to %lld", min, max);
    case FIELD_BOOL:
        return snprintf(text, size, "true or false");
    case FIELD_LIST:
        return snprintf(text, size,
                        "up to %d whole numbers from %lld to %lld with commas between them",
                        SEQUENCES_MAX, min, max);
    }
    return 0;
}

// The text with everything unprintable replaced and its tail cut, so that it can stand in a
// message.
static void quote(const char *value, char quoted[QUOTED_MAX])
{
    size_t i = 0;
    for (; i < QUOTED_MAX - 1 && value[i]; i++)
        quoted[i] = value[i] >= ' ' && value[i] <= '~' ? value[i] : '?';
    quoted[i] = '\0';
    if (value[i])
        memcpy(quoted + i - 3, "...", 3);
}

static enum status refuse(const struct case_field *field, const char *value, struct error *error)
{
    char accepted[CASE_ACCEPTED_MAX], quoted[QUOTED_MAX];
    case_accepted(field, accepted, sizeof accepted);
    quote(value, quoted);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is '%s'; accepted is %s", field->name,
                     quoted, accepted);
}

static bool is_label(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    if (length == size)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

static bool list_valid(const struct cp_case *c, const struct case_field *field)
{
    int32_t count = c->list_count[field->list];
    if (!case_lists_fit(c)) // then the list to blame is the one with that count
        return count >= 0 && count <= SEQUENCES_MAX;
    const int32_t *values = case_list(c, field->list, &count);
    for (int32_t i = 0; i < count; i++)
        if (values[i] < field->min || values[i] > field->max)
            return false;
    return true;
}

static bool field_valid(const struct cp_case *c, const struct case_field *field)
{
    switch (field->kind) {
    case FIELD_TEXT:
        return is_label((const char *)c + field->offset, field->size);
    case FIELD_CHOICE:
        return case_choice_name(field->choices, (int)load_int(c, field))[0] != '?';
    case FIELD_INT:
        return load_int(c, field) >= field->min && load_int(c, field) <= field->max;
    case FIELD_REAL: // written so that NaN fails
        return load_real(c, field) >= field->min && load_real(c, field) <= field->max;
    case FIELD_LIST:
        return list_valid(c, field);
    case FIELD_UINT:
    case FIELD_BOOL:
        break;
    }
    return true;
}

// A choice without a name is shown by its number, 0 by its meaning.
static void value_text(const struct cp_case *c, const struct case_field *field, char *text,
                       size_t size)
{
    if (field->kind == FIELD_LIST && !case_lists_fit(c))
        snprintf(text, size, "%lld numbers", (long long)load_int(c, field));
    else if (field->kind != FIELD_CHOICE)
        case_get(c, field, text, size);
    else if (load_int(c, field) == 0)
        snprintf(text, size, "unspecified");
    else
        snprintf(text, size, "%lld", (long long)load_int(c, field));
}

enum status case_check_fields(const struct cp_case *c, struct error *error)
{
    for (const struct case_field *field = field_table; field->name; field++) {
        if (field_valid(c, field))
            continue;
        char text[MODEL_NAME_MAX];
        value_text(c, field, text, sizeof text);
        return refuse(field, text, error);
    }
    return STATUS_OK;
}

// ---- text to value
// ----------------------------------------------------------------------------------

static const struct case_choice *find_choice(const struct case_choice *choices, const char *name)
{
    for (; choices && choices->name; choices++)
        if (strcmp(choices->name, name) == 0)
            return choices;
    return NULL;
}

static bool set_choice(struct cp_case *c, const struct case_field *field, const char *value)
{
    const struct case_choice *choice = find_choice(field->choices, value);
    if (!choice)
        choice = find_choice(field->aliases, value);
    if (choice)
        store_int(c, field, choice->value);
    return choice != NULL;
}

static bool counts_tokens(const struct case_field *field)
{
    return field->max == SEQLEN_MAX;
}

static bool parse_number(const struct case_field *field, const char *text, int64_t *value)
{
    return counts_tokens(field) ? number_parse_tokens(text, value) : number_parse_int(text, value);
}

// One number of a list, up to the comma or the end; *text moves behind it.
static bool parse_entry(const struct case_field *field, const char **text, int32_t *value)
{
    char number[16];
    size_t length = strcspn(*text, ",");
    int64_t parsed;
    if (length >= sizeof number)
        return false;
    memcpy(number, *text, length);
    number[length] = '\0';
    if (!parse_number(field, number, &parsed) || parsed < field->min || parsed > field->max)
        return false;
    *value = (int32_t)parsed;
    *text += length;
    return true;
}

// Nothing is an empty list; "1," and ",1" are not guessed at.
static bool set_list(struct cp_case *c, const struct case_field *field, const char *value)
{
    int32_t values[SEQUENCES_MAX], count = 0;
    for (bool more = *value; more;) {
        if (count == SEQUENCES_MAX || !parse_entry(field, &value, &values[count++]))
            return false;
        more = *value == ',';
        value += more;
    }
    case_list_set(c, field->list, values, count);
    return true;
}

static bool set_int(struct cp_case *c, const struct case_field *field, const char *value)
{
    int64_t parsed;
    if (!parse_number(field, value, &parsed) || parsed < field->min || parsed > field->max)
        return false;
    store_int(c, field, parsed);
    return true;
}

static bool set_uint(struct cp_case *c, const struct case_field *field, const char *value)
{
    uint64_t parsed;
    if (!number_parse_digits(value, &parsed))
        return false;
    memcpy((char *)c + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_real(struct cp_case *c, const struct case_field *field, const char *value)
{
    double parsed;
    if (!number_parse_real(value, &parsed) || parsed < field->min || parsed > field->max)
        return false;
    memcpy((char *)c + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_bool(struct cp_case *c, const struct case_field *field, const char *value)
{
    bool parsed = strcmp(value, "true") == 0;
    if (!parsed && strcmp(value, "false") != 0)
        return false;
    memcpy((char *)c + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_text(struct cp_case *c, const struct case_field *field, const char *value)
{
    if (!is_label(value, field->size))
        return false;
    if (find_choice(field->aliases, value))
        value = "";
    char *member = (char *)c + field->offset;
    memset(member, 0, field->size);
    memcpy(member, value, strlen(value));
    return true;
}

static bool field_set(struct cp_case *c, const struct case_field *field, const char *value)
{
    switch (field->kind) {
    case FIELD_TEXT:
        return set_text(c, field, value);
    case FIELD_CHOICE:
        return set_choice(c, field, value);
    case FIELD_INT:
        return set_int(c, field, value);
    case FIELD_UINT:
        return set_uint(c, field, value);
    case FIELD_REAL:
        return set_real(c, field, value);
    case FIELD_BOOL:
        return set_bool(c, field, value);
    case FIELD_LIST:
        return set_list(c, field, value);
    }
    return false;
}

static enum status refuse_name(const char *name, struct error *error)
{
    char quoted[QUOTED_MAX], hint[HINT_MAX];
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (const struct case_field *field = field_table; field->name; field++)
        nearest_offer(&nearest, field->name);
    for (const struct case_pair *pair = pair_table; pair->name; pair++)
        nearest_offer(&nearest, pair->name);
    quote(name, quoted);
    return error_set(error, STATUS_INVALID_ARGUMENT, "'%s' is not a field of a case%s", quoted,
                     nearest_hint(&nearest, hint, sizeof hint));
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
    if (!field_set(c, field, value))
        return refuse(field, value, error);
    return STATUS_OK;
}

// ---- value to text
// ----------------------------------------------------------------------------------

static int print_list(const struct cp_case *c, const struct case_field *field, char *text,
                      size_t size)
{
    int32_t count;
    const int32_t *values = case_list(c, field->list, &count);
    size_t length = 0;
    if (size > 0)
        text[0] = '\0';
    for (int32_t i = 0; i < count; i++) {
        bool room = length < size;
        length += (size_t)snprintf(room ? text + length : NULL, room ? size - length : 0, "%s%d",
                                   i > 0 ? "," : "", values[i]);
    }
    return (int)length;
}

int case_get(const struct cp_case *c, const struct case_field *field, char *text, size_t size)
{
    switch (field->kind) {
    case FIELD_TEXT:
        if (field->aliases && *((const char *)c + field->offset) == '\0')
            return snprintf(text, size, "%s", field->aliases->name);
        return snprintf(text, size, "%.*s", (int)field->size, (const char *)c + field->offset);
    case FIELD_CHOICE:
        return snprintf(text, size, "%s",
                        case_choice_name(field->choices, (int)load_int(c, field)));
    case FIELD_INT:
        return snprintf(text, size, "%lld", (long long)load_int(c, field));
    case FIELD_UINT:
        return snprintf(text, size, "%llu", (unsigned long long)load_int(c, field));
    case FIELD_REAL:
        return number_print_real(load_real(c, field), text, size);
    case FIELD_BOOL:
        return snprintf(text, size, "%s", load_bool(c, field) ? "true" : "false");
    case FIELD_LIST:
        return print_list(c, field, text, size);
    }
    return 0;
}
