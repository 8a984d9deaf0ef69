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

bool plain_file_is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return strcmp(a, b) == 0 ||
           (stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && S_ISREG(of_a.st_mode) &&
            of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino);
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
