// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/dump.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/request.h"
#include "client/submit/commands/command.h"
#include "client/submit/tensors/error_map.h"
#include "client/submit/tensors/tensors.h"

enum cpattn_status dump_run(struct cpattn_client *client, const struct cp_case *c,
                            const struct tensors *t, uint64_t timeout_ns,
                            struct cpattn_result **result, struct cpattn_error *error)
{
    struct cpattn_request *request = NULL;
    struct error inner = {.status = STATUS_OK};
    struct cpattn_case *made = command_library_case(c);
    if (!made)
        return CPATTN_RESOURCE_EXHAUSTED;
    enum status status = request_attend(client, made, &t->at, timeout_ns, &request, &inner);
    cpattn_case_destroy(made);
    if (status != STATUS_OK)
        return client_status(status, &inner, error);
    return command_collect(request, result, error);
}

// ---- pictures ----

static enum status picture_write(const struct error_map *maps, int count, const struct cp_case *c,
                                 const char *path, struct error *error)
{
    FILE *file = fopen(path, "we");
    if (file)
        error_maps_svg(maps, count, c, file);
    bool good = file && !ferror(file);
    if (file && fclose(file) != 0)
        good = false;
    return good ? STATUS_OK
                : error_set(error, STATUS_DATA_LOSS, "%s cannot be written: %s", path,
                            strerror(errno));
}

// The largest error in units of one rounding.
static double badness(const struct error_map *map)
{
    return map->largest / map->unit;
}

enum status dump_picture(const struct cp_case *c, const struct tensors *t, const char *path,
                         FILE *out, struct error *error)
{
    struct error_map maps[ERROR_MAPS_MAX];
    int count = 0, worst = 0;
    enum status status = error_maps_init(maps, &count, c, t, error);
    if (status != STATUS_OK)
        return status;
    for (int i = 1; i < count; i++)
        worst = badness(&maps[i]) > badness(&maps[worst]) ? i : worst;
    if (out && count > 0)
        error_map_print(&maps[worst], c, out);
    if (path)
        status = picture_write(maps, count, c, path, error);
    while (count > 0)
        error_map_fini(&maps[--count]);
    return status;
}

// ---- fails ----

static char *path_make(const char *directory, const char *name, const char *suffix)
{
    char *path = NULL, *word = strdup(name);
    for (char *at = word; at && *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("-_.,=+", *at))
            *at = '_';
    if (word && word[0] == '.')
        word[0] = '_';
    if (word && asprintf(&path, "%s/%.200s%s", directory, word, suffix) < 0)
        path = NULL;
    free(word);
    return path;
}

static enum status directory_make(const char *directory, struct error *error)
{
    if (mkdir(directory, 0777) == 0 || errno == EEXIST)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "the directory %s cannot be created: %s",
                     directory, strerror(errno));
}

int dump_check(const char *directory)
{
    struct stat found;
    bool made = directory && mkdir(directory, 0777) == 0;
    if (made)
        rmdir(directory);
    if (!directory || made)
        return COMMAND_PASS;
    if (errno == EEXIST && stat(directory, &found) == 0) {
        errno = S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
        if (errno == 0 && access(directory, W_OK | X_OK) == 0)
            return COMMAND_PASS;
    }
    command_complain("--dump-fails is '%s': %s; accepted is a directory, or the name of a new one",
                     directory, strerror(errno));
    return COMMAND_USAGE;
}

static enum status fail_write(struct cpattn_client *client, const struct cp_case *c,
                              uint64_t timeout_ns, const char *tensors, const char *picture,
                              struct error *error)
{
    struct cpattn_result *result = NULL;
    struct cpattn_error told = {.text = ""};
    struct tensors t;
    enum status status =
        tensors_make(&t, c, TENSORS_INPUTS | TENSORS_RESULTS | TENSORS_EXPECTED, error);
    if (status != STATUS_OK)
        return status;
    enum cpattn_status answer = dump_run(client, c, &t, timeout_ns, &result, &told);
    if (answer != CPATTN_OK)
        status = error_set(error, (enum status)answer, "%s", told.text);
    if (status == STATUS_OK)
        status = tensors_save(tensors, c, &t, error);
    if (status == STATUS_OK)
        status = dump_picture(c, &t, picture, NULL, error);
    if (status == STATUS_OK && result && result->verdict == CPATTN_VERDICT_PASS)
        command_complain("the case passed when it was run again to write %s", tensors);
    cpattn_result_destroy(result);
    tensors_fini(&t);
    return status;
}

bool dump_fail(struct cpattn_client *client, const struct cp_case *c, uint64_t timeout_ns,
               const char *directory, const char *name)
{
    struct error error = {.text = "not enough memory"};
    char *tensors = path_make(directory, name, ".safetensors");
    char *picture = path_make(directory, name, ".svg");
    enum status status =
        tensors && picture ? directory_make(directory, &error) : STATUS_RESOURCE_EXHAUSTED;
    if (status == STATUS_OK)
        status = fail_write(client, c, timeout_ns, tensors, picture, &error);
    if (status == STATUS_OK)
        fprintf(stderr, "wrote %s and %s\n", tensors, picture);
    else
        command_complain("the tensors of a failed case are not written: %s", error.text);
    free(tensors);
    free(picture);
    return status == STATUS_OK;
}
