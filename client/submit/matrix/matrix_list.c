// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/matrix_list.h"

#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/fields.h"
#include "client/submit/matrix/matrix_fields.h"
#include "client/submit/matrix/shrink.h"
#include "client/submit/outcome/text.h"
#include "common/nearest.h"

#define ID_MAX (MATRIX_AXES_MAX * MATRIX_LABEL_MAX)

// All inputs from which the cases are made.
struct maker {
    const struct matrix *matrix;
    struct matrix_list *list;
    const struct matrix_choice *choice;
    const struct matrix_subset *subset; // NULL: everything
    struct filter filter;
    int dealt[MATRIX_FATES]; // number of cases of each fate that were dealt to shards
    struct error *error;
};

static enum status no_memory(struct maker *maker)
{
    return error_set(maker->error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the matrix");
}

// ---- the command line -------------------------------------------------------------------------

static const char *set_value(const char *set)
{
    return set + strlen(set) + 1;
}

// --set of an axis reduces it to one value.
static void axis_override(struct matrix_list *list, const struct job_kind *kind, const char *name,
                          const char *value)
{
    for (int i = 0; i < list->axis_count; i++) {
        struct matrix_axis *axis = &list->axes[i];
        if (axis->bundles || axis->mask != fields_mask(kind, name))
            continue;
        struct job_spec spec;
        job_spec_init(&spec, kind);
        (void)!job_spec_set(&spec, name, value, NULL);
        struct matrix_value *only = &list->set_values[i];
        *only = (struct matrix_value){.field = axis->name, .text = value};
        fields_label(&spec, axis->name, only->label, sizeof(only->label));
        axis->values = only;
        axis->count = 1;
    }
}

static enum status take_set(struct maker *maker, const char *text)
{
    struct job_spec spec;
    const char *sign = strchr(text, '=');
    if (!sign)
        return error_set(maker->error, STATUS_INVALID_ARGUMENT, "--set %s: expected FIELD=VALUE",
                         text);
    char *set = strdup(text);
    if (!set)
        return no_memory(maker);
    set[sign - text] = '\0';
    maker->list->sets[maker->list->set_count++] = set;
    if (strcmp(set, "model") == 0)
        return error_set(maker->error, STATUS_INVALID_ARGUMENT,
                         "--set %s: choose models with --filter %s", text, text);
    job_spec_init(&spec, maker->matrix->kind);
    if (job_spec_set(&spec, set, set_value(set), maker->error))
        return error_prefix(maker->error, "--set %s", text);
    axis_override(maker->list, spec.kind, set, set_value(set));
    return STATUS_OK;
}

static enum status take_subset(struct maker *maker, const char *name)
{
    char hint[NEAREST_WORD_MAX + 32], known[ERROR_TEXT_MAX / 2] = "";
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (int i = 0; i < maker->matrix->rules.subset_count; i++) {
        maker->subset = &maker->matrix->rules.subsets[i];
        if (strcmp(maker->subset->name, name) == 0)
            return STATUS_OK;
        nearest_offer(&nearest, maker->subset->name);
        text_append(known, sizeof(known), "%s%s", i > 0 ? ", " : "", maker->subset->name);
    }
    if (!known[0])
        return error_set(maker->error, STATUS_INVALID_ARGUMENT,
                         "--subset %s: the file has no subsets; leave the option out", name);
    return error_set(maker->error, STATUS_INVALID_ARGUMENT,
                     "--subset %s: the file has no subset of this name%s; known: %s", name,
                     nearest_hint(&nearest, hint, sizeof(hint)), known);
}

static enum status take_choice(struct maker *maker)
{
    const struct matrix_choice *choice = maker->choice;
    enum status status = STATUS_OK;
    maker->list->sets = calloc((size_t)choice->set_count + 1, sizeof(char *));
    if (!maker->list->sets)
        return no_memory(maker);
    for (int i = 0; i < choice->set_count && !status; i++)
        status = take_set(maker, choice->sets[i]);
    for (int i = 0; i < choice->filter_count && !status; i++) {
        status = filter_add_text(&maker->filter, maker->matrix->kind, choice->filters[i],
                                 maker->matrix->names, maker->matrix->name_count, maker->error);
        if (status)
            error_prefix(maker->error, "--filter %s", choice->filters[i]);
    }
    if (!status && choice->subset)
        status = take_subset(maker, choice->subset);
    return status;
}

// ---- one case ---------------------------------------------------------------------------------

static const struct matrix_value *case_value(const struct maker *maker,
                                             const struct matrix_case *made, int axis)
{
    return &maker->list->axes[axis].values[made->value[axis]];
}

static bool is_chosen(const struct maker *maker, const struct condition_subject *subject)
{
    if (!filter_matches(&maker->filter, subject))
        return false;
    for (int i = 0; maker->subset && i < maker->subset->count; i++)
        if (filter_matches(&maker->subset->filters[i], subject))
            return true;
    return !maker->subset;
}

static const struct matrix_rule *exclusion(const struct maker *maker,
                                           const struct condition_subject *subject)
{
    for (int i = 0; i < maker->matrix->rules.rule_count; i++) {
        const struct matrix_rule *rule = &maker->matrix->rules.rules[i];
        bool lifted = maker->choice->unskip && rule->kind == KIND_BACKEND;
        if (!lifted && filter_matches(&rule->when, subject))
            return rule;
    }
    return NULL;
}

// Decides whether the case runs, and applies --seqlen-scale.
static enum status decide_fate(struct maker *maker, struct matrix_case *made, struct job_spec *spec,
                               const struct condition_subject *subject)
{
    struct error why;
    const struct matrix_rule *rule = exclusion(maker, subject);
    // Only now, because the rules see the lengths of the file.
    if (maker->choice->seqlen_scale > 1 && spec->kind == &job_kind_attention)
        shrink_case(&spec->attention, maker->choice->seqlen_scale);
    if (rule) {
        made->fate = MATRIX_EXCLUDED;
        made->reason = rule->reason;
        made->kind = rule->kind;
        return STATUS_OK;
    }
    made->status = job_spec_finish(spec, &why);
    if (!made->status)
        return STATUS_OK;
    made->fate = MATRIX_REFUSED;
    made->reason = strdup(why.text);
    return made->reason ? STATUS_OK : no_memory(maker);
}

static enum status case_keep(struct maker *maker, struct matrix_case *made,
                             const struct job_spec *spec, const char *id)
{
    made->id = strdup(id);
    made->kind_of_job = spec->kind;
    made->packed_bytes = job_spec_bytes(spec);
    made->packed = malloc(made->packed_bytes);
    if (!made->id || !made->packed)
        return no_memory(maker);
    memcpy(made->packed, spec->bytes, made->packed_bytes);
    return STATUS_OK;
}

static void apply_sets(const struct matrix_list *list, struct job_spec *spec)
{
    for (int i = 0; i < list->set_count; i++)
        (void)!job_spec_set(spec, list->sets[i], set_value(list->sets[i]), NULL);
}

// True if the conditions of a change hold for the case, with kv_heads equal to heads if not set.
static bool change_applies(const struct matrix_change *change, const struct job_spec *spec,
                           const char *const *labels)
{
    struct job_spec finished = *spec;
    struct condition_subject subject = {.spec = &finished, .labels = labels, .id = ""};
    fields_finish(&finished);
    return filter_matches(&change->when, &subject);
}

// Applies the changes of the file (`set`) and --set. --set is applied before them, so that their
// conditions see it, and again after them, because it overrides them.
static void case_change(const struct maker *maker, struct job_spec *spec, const char *const *labels)
{
    struct error none;
    uint64_t mask;
    apply_sets(maker->list, spec);
    for (int i = 0; i < maker->matrix->rules.change_count; i++) {
        const struct matrix_change *change = &maker->matrix->rules.changes[i];
        if (change_applies(change, spec, labels))
            (void)!matrix_fields_apply(change->fields, spec, &mask, &none);
    }
    apply_sets(maker->list, spec);
    fields_finish(spec);
}

// Writes the job, the id and the labels (one for each of matrix->names) of a case with given
// values.
static void case_fill(const struct maker *maker, const struct matrix_case *made,
                      struct job_spec *spec, char *id, const char **labels)
{
    const struct matrix_list *list = maker->list;
    char *end = id;
    int named = 0;
    *spec = maker->matrix->defaults;
    for (int i = 0; i < list->axis_count; i++) {
        const struct matrix_axis *axis = &list->axes[i];
        const struct matrix_value *value = case_value(maker, made, i);
        matrix_value_apply(value, spec);
        if (axis->bundles)
            labels[named++] = value->label;
        if (strcmp(axis->name, "model") == 0 && job_kind_field(spec->kind, "model"))
            (void)!job_spec_set(spec, "model", value->label, NULL);
        end = stpcpy(end == id ? id : stpcpy(end, "/"), value->label);
    }
    case_change(maker, spec, labels);
}

static bool had_failed(const struct matrix_choice *choice, const char *id)
{
    struct record_entry *entry = choice->last_failed ? record_find(choice->last_failed, id) : NULL;
    if (entry)
        entry->met = true;
    return !choice->last_failed || (entry && record_entry_failed(entry));
}

// Deals the cases of each fate to the shards in turn, so that all shards run equally many.
static bool in_shard(struct maker *maker, enum matrix_fate fate)
{
    const struct matrix_choice *choice = maker->choice;
    return choice->shards == 0 || maker->dealt[fate]++ % choice->shards == choice->shard - 1;
}

static enum status case_make(struct maker *maker, const int32_t value[MATRIX_AXES_MAX])
{
    struct matrix_list *list = maker->list;
    struct matrix_case made = {.fate = MATRIX_RUNS};
    const char *labels[MATRIX_AXES_MAX];
    struct job_spec spec;
    char id[ID_MAX];
    memcpy(made.value, value, sizeof(made.value));
    case_fill(maker, &made, &spec, id, labels);
    struct condition_subject subject = {.spec = &spec, .labels = labels, .id = id};
    if (!had_failed(maker->choice, id) || !is_chosen(maker, &subject)) {
        list->left_out++;
        return STATUS_OK;
    }
    enum status status = decide_fate(maker, &made, &spec, &subject);
    if (!status && !in_shard(maker, made.fate)) {
        if (made.fate == MATRIX_REFUSED)
            free((void *)made.reason);
        list->left_out++;
        return STATUS_OK;
    }
    if (!status)
        status = case_keep(maker, &made, &spec, id);
    list->cases[list->count++] = made;
    list->fate_count[made.fate]++;
    return status;
}

// ---- the product ------------------------------------------------------------------------------

static enum status count_product(const struct maker *maker, int *total)
{
    const struct matrix_list *list = maker->list;
    int64_t product = 1;
    for (int i = 0; i < list->axis_count && product <= MATRIX_CASES_MAX; i++)
        product *= list->axes[i].count;
    if (product > MATRIX_CASES_MAX)
        return error_set(maker->error, STATUS_RESOURCE_EXHAUSTED,
                         "the matrix has more than %d combinations; split it into several files",
                         MATRIX_CASES_MAX);
    *total = (int)product;
    return STATUS_OK;
}

// Advances to the next combination of values; the last axis changes fastest.
static void next_values(const struct matrix_list *list, int32_t value[MATRIX_AXES_MAX])
{
    for (int i = list->axis_count - 1; i >= 0; i--) {
        if (++value[i] < list->axes[i].count)
            return;
        value[i] = 0;
    }
}

static enum status make_all(struct maker *maker)
{
    int total = 1;
    enum status status = count_product(maker, &total);
    if (status)
        return status;
    struct matrix_list *list = maker->list;
    int32_t value[MATRIX_AXES_MAX] = {0};
    list->cases = calloc((size_t)total, sizeof(*list->cases));
    if (!list->cases)
        return no_memory(maker);
    for (int i = 0; i < total && !status; i++) {
        status = case_make(maker, value);
        next_values(list, value);
    }
    return status;
}

enum status matrix_list_create(const struct matrix *matrix, const struct matrix_choice *choice,
                               struct matrix_list **list, struct error *error)
{
    struct maker maker = {.matrix = matrix, .choice = choice, .error = error};
    maker.list = calloc(1, sizeof(*maker.list));
    if (!maker.list)
        return no_memory(&maker);
    memcpy(maker.list->axes, matrix->axes, sizeof(matrix->axes));
    maker.list->axis_count = matrix->axis_count;
    enum status status = take_choice(&maker);
    if (!status)
        status = make_all(&maker);
    filter_fini(&maker.filter);
    if (status)
        matrix_list_destroy(maker.list);
    else
        *list = maker.list;
    return status;
}

void matrix_list_destroy(struct matrix_list *list)
{
    if (!list)
        return;
    for (int i = 0; i < list->count; i++) {
        free(list->cases[i].id);
        free(list->cases[i].packed);
        if (list->cases[i].fate == MATRIX_REFUSED)
            free((void *)list->cases[i].reason);
    }
    for (int i = 0; i < list->set_count; i++)
        free(list->sets[i]);
    free(list->cases);
    free(list->sets);
    free(list);
}

void matrix_case_load(const struct matrix_case *made, struct job_spec *spec)
{
    spec->kind = made->kind_of_job;
    if (spec->kind == &job_kind_attention)
        (void)!case_load(&spec->attention, made->packed, made->packed_bytes, NULL);
    else
        memcpy(spec->bytes, made->packed, made->packed_bytes);
}
