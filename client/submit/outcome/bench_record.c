// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/bench_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "client/submit/outcome/json_line.h"

void bench_record_destroy(struct bench_record *record)
{
    if (!record)
        return;
    for (int i = 0; i < record->count; i++)
        free(record->entries[i].command);
    free(record->entries);
    free(record);
}

static enum status add_entry(struct bench_record *record, const json_t *object, struct error *error)
{
    const json_t *command = json_object_get(object, "command");
    const json_t *run = json_object_get(json_object_get(object, "times_ns"), "run");
    const json_t *median = json_object_get(run, "median");
    if (!json_is_string(command))
        return json_line_refuse("command", command, "a text", error);
    if (!(json_number_value(median) > 0))
        return json_line_refuse("times_ns.run.median", median,
                                "a number above 0, as bench --save of this version writes it",
                                error);
    size_t count = (size_t)record->count + 1;
    struct bench_entry *grown = reallocarray(record->entries, count, sizeof(*grown));
    if (!grown)
        return STATUS_RESOURCE_EXHAUSTED;
    record->entries = grown;
    grown[record->count] =
        (struct bench_entry){strdup(json_string_value(command)), json_number_value(median)};
    if (!grown[record->count].command)
        return STATUS_RESOURCE_EXHAUSTED;
    record->count++;
    return STATUS_OK;
}

static enum status add_line(struct bench_record *record, const char *line, size_t length,
                            struct error *error)
{
    json_t *object = NULL;
    enum status status = json_line_read(line, length, &object, error);
    if (!status)
        status = add_entry(record, object, error);
    json_decref(object);
    return status;
}

static enum status read_lines(FILE *in, const char *path, struct bench_record *record,
                              struct error *error)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int number = 0;
    enum status status = STATUS_OK;
    while (!status && (length = getline(&line, &size, in)) > 0) {
        number++;
        status = add_line(record, line, (size_t)length, error);
    }
    free(line);
    if (status == STATUS_INVALID_ARGUMENT)
        return error_prefix(error, "%s:%d: no bench", path, number);
    if (status)
        return error_set(error, status, "%s: not enough memory", path);
    if (ferror(in))
        return error_set(error, STATUS_INTERNAL, "%s: cannot be read: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status bench_record_load(const char *path, struct bench_record **record, struct error *error)
{
    FILE *in = fopen(path, "re");
    if (!in)
        return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_INTERNAL,
                         "%s: cannot be read: %s", path, strerror(errno));
    struct bench_record *made = calloc(1, sizeof(*made));
    enum status status =
        made ? read_lines(in, path, made, error)
             : error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: not enough memory", path);
    fclose(in);
    if (status) {
        bench_record_destroy(made);
        return status;
    }
    *record = made;
    return STATUS_OK;
}

// Removes an option, given as " --NAME ", and its value from a command line.
static void option_remove(char *command, const char *option)
{
    char *at = strstr(command, option);
    if (!at)
        return;
    char *behind = at + strlen(option) + strcspn(at + strlen(option), " ");
    memmove(at, behind, strlen(behind) + 1);
}

// The command line without the options that say who computes. The caller frees it; NULL: no memory.
static char *work_of(const char *command)
{
    char *work = strdup(command);
    if (!work)
        return NULL;
    option_remove(work, " --implementation ");
    option_remove(work, " --provider ");
    option_remove(work, " --provider-fallback ");
    return work;
}

static const struct bench_entry *find_work(const struct bench_record *record, const char *command)
{
    const struct bench_entry *found = NULL;
    char *wanted = work_of(command);
    for (int i = record->count - 1; i >= 0 && wanted && !found; i--) {
        char *work = work_of(record->entries[i].command);
        if (work && strcmp(work, wanted) == 0)
            found = &record->entries[i];
        free(work);
    }
    free(wanted);
    return found;
}

const struct bench_entry *bench_record_find(const struct bench_record *record, const char *command)
{
    for (int i = record->count - 1; i >= 0; i--)
        if (strcmp(record->entries[i].command, command) == 0)
            return &record->entries[i];
    return find_work(record, command);
}
