// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/dump.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/request.h"
#include "client/submit/commands/command.h"
#include "client/submit/tensors/error_map.h"
#include "client/submit/tensors/tensors.h"

// A longer name of a file, without its suffix, is cut and ends with a hash of the id.
#define NAME_BYTES_MAX  200
#define NAME_HASH_BYTES sizeof("~0123456789abcdef")

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

// Returns the name of files for an id; different ids have different names. NULL: out of memory.
static char *name_make(const char *id)
{
    char *name = malloc(3 * strlen(id) + NAME_BYTES_MAX + NAME_HASH_BYTES), *end = name;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; name && *id; id++) {
        unsigned char c = (unsigned char)*id;
        hash = (hash ^ c) * UINT64_C(0x100000001b3); // FNV-1a
        if (c == '/')
            *end++ = '~';
        else if (isalnum(c) || strchr("-_,=+", c) || (c == '.' && end > name))
            *end++ = (char)c;
        else
            end += sprintf(end, "%%%02x", c);
    }
    if (name)
        *end = '\0';
    if (name && end - name > NAME_BYTES_MAX)
        snprintf(name + NAME_BYTES_MAX, NAME_HASH_BYTES, "~%016" PRIx64, hash);
    return name;
}

static char *path_make(const char *directory, const char *id, const char *suffix)
{
    char *path = NULL, *name = name_make(id);
    if (name && asprintf(&path, "%s/%s%s", directory, name, suffix) < 0)
        path = NULL;
    free(name);
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
               const char *directory, const char *id)
{
    struct error error = {.text = "not enough memory"};
    char *tensors = path_make(directory, id, ".safetensors");
    char *picture = path_make(directory, id, ".svg");
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
