// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/record.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/outcome/json_line.h"
#include "client/submit/outcome/text.h"

static void entry_fini(struct record_entry *entry)
{
    free(entry->id);
    free(entry->command);
    outcome_fini(&entry->outcome);
}

void record_destroy(struct record *record)
{
    if (!record)
        return;
    for (int i = 0; i < record->count; i++)
        entry_fini(&record->entries[i]);
    free(record->entries);
    free(record);
}

// ---- one line ---------------------------------------------------------------------------------

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static double real_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? INFINITY : json_number_value(value);
}

static uint64_t time_of(const json_t *object, const char *name)
{
    json_int_t ns = json_integer_value(json_object_get(json_object_get(object, "times_ns"), name));
    return ns > 0 ? (uint64_t)ns : 0;
}

static uint64_t slowest_of(const json_t *object, const char *name)
{
    uint64_t slowest_ns = 0;
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(object, "ranks"), i, rank)
    {
        uint64_t ns = time_of(rank, name);
        slowest_ns = ns > slowest_ns ? ns : slowest_ns;
    }
    return slowest_ns;
}

static bool find_kind(const char *name, enum outcome_kind *kind)
{
    for (int i = 0; i < OUTCOME_KINDS; i++) {
        *kind = (enum outcome_kind)i;
        if (strcmp(outcome_name(*kind), name) == 0)
            return true;
    }
    return false;
}

static enum status find_status(const char *name)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if (strcmp(status_name((enum status)i), name) == 0)
            return (enum status)i;
    return STATUS_UNKNOWN;
}

// An empty text becomes NULL.
static bool keep_text(char **kept, const char *text)
{
    *kept = text[0] ? strdup(text) : NULL;
    return *kept || !text[0];
}

// "NAME, NAME or NAME".
static enum status refuse_outcome(const json_t *object, struct error *error)
{
    char accepted[OUTCOME_KINDS * (OUTCOME_WORD_MAX + 4)] = "";
    for (int i = 0; i < OUTCOME_KINDS; i++) {
        const char *joint = i == 0 ? "" : i + 1 < OUTCOME_KINDS ? ", " : " or ";
        text_append(accepted, sizeof(accepted), "%s%s", joint, outcome_name((enum outcome_kind)i));
    }
    return json_line_refuse("outcome", json_object_get(object, "outcome"), accepted, error);
}

// Checks what the rest of the program relies on, and takes outcome and error.
static enum status take_verdict(const json_t *object, struct outcome *o, struct error *error)
{
    static const char *const texts[] = {
        "id",      "outcome",       "status",        "tensor",    "rule",    "digest",
        "message", "first_outcome", "first_message", "diagnosis", "command", NULL};
    const json_t *used = json_object_get(object, "of_limit");
    if (json_line_texts(object, texts, error))
        return STATUS_INVALID_ARGUMENT;
    if (!text_of(object, "id")[0])
        return json_line_refuse("id", json_object_get(object, "id"), "the name of a case", error);
    if (!find_kind(text_of(object, "outcome"), &o->kind))
        return refuse_outcome(object, error);
    o->used = real_of(object, "of_limit");
    if (o->used < 0 || (used && !json_is_number(used) && !json_is_string(used)))
        return json_line_refuse("of_limit", used, "a number from 0, \"inf\" or \"nan\"", error);
    return STATUS_OK;
}

static enum status take_entry(const json_t *object, struct record_entry *entry, struct error *error)
{
    struct outcome *o = &entry->outcome;
    *entry = (struct record_entry){0};
    if (take_verdict(object, o, error))
        return STATUS_INVALID_ARGUMENT;
    o->status = find_status(text_of(object, "status"));
    snprintf(o->tensor, sizeof(o->tensor), "%s", text_of(object, "tensor"));
    snprintf(o->rule, sizeof(o->rule), "%s", text_of(object, "rule"));
    o->forward_ns = slowest_of(object, "forward");
    o->backward_ns = slowest_of(object, "backward");
    o->run_ns = time_of(object, "run");
    o->wait_ns = time_of(object, "queue") + time_of(object, "start");
    snprintf(entry->digest, sizeof(entry->digest), "%s", text_of(object, "digest"));
    o->sampled = json_is_true(json_object_get(object, "sampled"));
    o->was_wrong = !strcmp(text_of(object, "first_outcome"), outcome_name(OUTCOME_FAIL));
    o->blind = json_object_get(object, "blind") != NULL;
    bool kept = keep_text(&entry->id, text_of(object, "id")) &&
                keep_text(&entry->command, text_of(object, "command")) &&
                keep_text(&o->sentence, text_of(object, "message")) &&
                keep_text(&o->first, text_of(object, "first_message")) &&
                keep_text(&o->diagnosis, text_of(object, "diagnosis"));
    if (kept)
        return STATUS_OK;
    entry_fini(entry);
    return STATUS_RESOURCE_EXHAUSTED;
}

static enum status entry_read(const char *line, size_t length, struct record_entry *entry,
                              struct error *error)
{
    json_t *object = NULL;
    enum status status = json_line_read(line, length, &object, error);
    if (!status)
        status = take_entry(object, entry, error);
    json_decref(object);
    return status;
}

// ---- the file ---------------------------------------------------------------------------------

static enum status entry_add(struct record *record, int *room, const char *line, size_t length,
                             struct error *error)
{
    if (record->count == *room) {
        int grown = *room ? 2 * *room : 256;
        struct record_entry *entries =
            reallocarray(record->entries, (size_t)grown, sizeof(*entries));
        if (!entries)
            return STATUS_RESOURCE_EXHAUSTED;
        record->entries = entries;
        *room = grown;
    }
    enum status status = entry_read(line, length, &record->entries[record->count], error);
    record->count += status == STATUS_OK;
    return status;
}

static enum status read_lines(FILE *in, const char *path, struct record *record,
                              struct error *error)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length = 0;
    int room = 0, number = 0;
    enum status status = STATUS_OK;
    while (!status && (length = getline(&line, &size, in)) > 0 && line[length - 1] == '\n') {
        number++;
        record->bytes += length;
        status = number > RECORD_LINES_MAX ? STATUS_INVALID_ARGUMENT
                                           : entry_add(record, &room, line, (size_t)length, error);
    }
    record->cut = !status && length > 0;
    bool joined = status == STATUS_INVALID_ARGUMENT && strstr(line + 1, "{\"id\":");
    free(line);
    if (status == STATUS_INVALID_ARGUMENT && number > RECORD_LINES_MAX)
        return error_set(error, status, "%s: more than %d lines", path, RECORD_LINES_MAX);
    if (joined)
        return error_set(error, status,
                         "%s:%d: an incomplete line, and another one behind it; end a killed run "
                         "with --resume before its record is joined with others",
                         path, number);
    if (status == STATUS_INVALID_ARGUMENT)
        return error_prefix(error, "%s:%d: no answer of a matrix", path, number);
    if (status)
        return error_set(error, status, "%s: not enough memory", path);
    if (ferror(in))
        return error_set(error, STATUS_INTERNAL, "%s: cannot be read: %s", path, strerror(errno));
    return STATUS_OK;
}

// qsort() is not stable: `line` keeps entries with the same id in the order of the file.
struct sorted {
    struct record_entry entry;
    int line;
};

static int by_id(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int order = strcmp(x->entry.id, y->entry.id);
    return order ? order : x->line - y->line;
}

// Sorts, and keeps the last of each id.
static enum status keep_last(struct record *record)
{
    struct sorted *all = calloc((size_t)record->count + 1, sizeof(*all));
    if (!all)
        return STATUS_RESOURCE_EXHAUSTED;
    for (int i = 0; i < record->count; i++)
        all[i] = (struct sorted){record->entries[i], i};
    qsort(all, (size_t)record->count, sizeof(*all), by_id);
    int kept = 0;
    for (int i = 0; i < record->count; i++) {
        if (i + 1 < record->count && strcmp(all[i].entry.id, all[i + 1].entry.id) == 0)
            entry_fini(&all[i].entry);
        else
            record->entries[kept++] = all[i].entry;
    }
    record->count = kept;
    free(all);
    return STATUS_OK;
}

enum status record_load(const char *path, struct record **record, struct error *error)
{
    FILE *in = fopen(path, "re");
    if (!in)
        return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_INTERNAL,
                         "%s: cannot be read: %s", path, strerror(errno));
    struct record *made = calloc(1, sizeof(*made));
    enum status status = made ? read_lines(in, path, made, error) : STATUS_RESOURCE_EXHAUSTED;
    fclose(in);
    if (!status)
        status = keep_last(made);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        error_set(error, status, "%s: not enough memory", path);
    if (status) {
        record_destroy(made);
        return status;
    }
    *record = made;
    return STATUS_OK;
}

static int id_of(const void *id, const void *entry)
{
    return strcmp(id, ((const struct record_entry *)entry)->id);
}

struct record_entry *record_find(const struct record *record, const char *id)
{
    if (record->count == 0)
        return NULL;
    return bsearch(id, record->entries, (size_t)record->count, sizeof(*record->entries), id_of);
}

bool record_entry_failed(const struct record_entry *entry)
{
    const struct outcome *o = &entry->outcome;
    return o->kind == OUTCOME_FAIL || o->kind == OUTCOME_ERROR || o->was_wrong;
}
