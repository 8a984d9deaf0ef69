// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool plain_file(const char *path)
{
    struct stat found;
    return lstat(path, &found) != 0 || S_ISREG(found.st_mode);
}

static bool is_one(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// Returns the name of the file in its folder. False if there is no such folder.
static bool folder_find(const char *path, struct stat *folder, const char **name)
{
    const char *slash = strrchr(path, '/');
    char *of_folder = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
    bool found = of_folder && stat(of_folder, folder) == 0;
    *name = slash ? slash + 1 : path;
    free(of_folder);
    return found;
}

// True if both paths, of files that do not exist, end with the same name in the same folder.
static bool will_be_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    const char *name_a, *name_b;
    return folder_find(a, &of_a, &name_a) && folder_find(b, &of_b, &name_b) &&
           is_one(&of_a, &of_b) && strcmp(name_a, name_b) == 0;
}

bool plain_file_is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    bool a_exists = stat(a, &of_a) == 0, b_exists = stat(b, &of_b) == 0;
    if (strcmp(a, b) == 0)
        return true;
    if (a_exists && b_exists)
        return S_ISREG(of_a.st_mode) && is_one(&of_a, &of_b);
    return !a_exists && !b_exists && will_be_same(a, b);
}

// The mode of the existing file, or that which open() gives a new one.
static mode_t usual_mode(const char *path)
{
    struct stat found;
    mode_t mask = umask(0);
    umask(mask);
    return stat(path, &found) == 0 ? found.st_mode & 0777 : 0666 & ~mask;
}

static FILE *open_temporary(struct whole_file *file)
{
    if (asprintf(&file->temporary, "%s.XXXXXX", file->path) < 0) {
        file->temporary = NULL;
        errno = ENOMEM;
        return NULL;
    }
    int fd = mkostemp(file->temporary, O_CLOEXEC);
    if (fd < 0)
        return NULL;
    FILE *out = fchmod(fd, usual_mode(file->path)) == 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        int saved = errno;
        close(fd);
        unlink(file->temporary);
        errno = saved;
    }
    return out;
}

bool whole_file_open(struct whole_file *file, const char *path)
{
    *file = (struct whole_file){.path = path};
    file->out = plain_file(path) ? open_temporary(file) : fopen(path, "we");
    if (file->out)
        return true;
    int saved = errno;
    free(file->temporary);
    *file = (struct whole_file){.path = path};
    errno = saved;
    return false;
}

static bool is_directory(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

bool whole_file_possible(const char *path)
{
    struct whole_file file;
    if (!path[0] || is_directory(path)) {
        errno = path[0] ? EISDIR : ENOENT;
        return false;
    }
    if (!plain_file(path))
        return access(path, W_OK) == 0;
    bool possible = whole_file_open(&file, path);
    whole_file_abandon(&file);
    return possible;
}

bool whole_file_commit(struct whole_file *file, bool complete)
{
    int saved = errno;
    if (fclose(file->out) != 0 && complete) {
        complete = false;
        saved = errno;
    }
    file->out = NULL;
    if (complete && file->temporary && rename(file->temporary, file->path) != 0) {
        complete = false;
        saved = errno;
    }
    if (!complete && file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    file->temporary = NULL;
    errno = saved;
    return complete;
}

void whole_file_abandon(struct whole_file *file)
{
    if (file->out)
        fclose(file->out);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    *file = (struct whole_file){.path = file->path};
}
