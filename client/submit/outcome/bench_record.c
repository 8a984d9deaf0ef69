// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/bench_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <jansson.h>

void bench_record_destroy(struct bench_record *record)
{
    if (!record)
        return;
    for (int i = 0; i < record->count; i++)
        free(record->entries[i].command);
    free(record->entries);
    free(record);
}

static double median(const json_t *object, const char *series)
{
    const json_t *times = json_object_get(object, "times_ns");
    return json_number_value(json_object_get(json_object_get(times, series), "median"));
}

static enum status add_line(struct bench_record *record, const char *line, size_t length)
{
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const char *command = json_string_value(json_object_get(object, "command"));
    double device_ns = median(object, "run");
    enum status status = command && device_ns > 0 ? STATUS_OK : STATUS_INVALID_ARGUMENT;
    struct bench_entry *grown = NULL;
    if (!status) {
        size_t count = (size_t)record->count + 1;
        grown = reallocarray(record->entries, count, sizeof(*grown));
        status = grown ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
    }
    if (!status) {
        record->entries = grown;
        grown[record->count] = (struct bench_entry){strdup(command), device_ns};
        status = grown[record->count].command ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
        record->count += !status;
    }
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
        status = add_line(record, line, (size_t)length);
    }
    free(line);
    if (status == STATUS_INVALID_ARGUMENT)
        return error_set(
            error, status,
            "%s:%d: no bench; accepted are lines as bench --save of this version writes them", path,
            number);
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
