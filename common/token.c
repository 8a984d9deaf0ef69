// SPDX-License-Identifier: Apache-2.0
#include "common/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool token_is_valid(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < ' ' || bytes[i] > '~')
            return false;
    }
    return size >= TOKEN_BYTES_MIN && size <= TOKEN_BYTES_MAX;
}

void token_set(struct token *token, const void *data, size_t size)
{
    memset(token->text, 0, sizeof(token->text));
    memcpy(token->text, data, size);
}

// Reads at most `room` bytes of the file and drops a final newline. Returns the length; negative,
// with errno: the file cannot be read.
static ssize_t file_read(int fd, char *data, size_t room)
{
    size_t size = 0;
    ssize_t got;
    while ((got = read(fd, data + size, room - size)) != 0 && size < room) {
        if (got < 0 && errno != EINTR)
            return -1;
        size += got > 0 ? (size_t)got : 0;
    }
    if (size > 0 && data[size - 1] == '\n')
        size--;
    return (ssize_t)size;
}

static enum status content_read(int fd, const char *path, struct token *token, struct error *error)
{
    char data[TOKEN_BYTES_MAX + 2]; // a newline, and one byte more to detect excess
    enum status status = STATUS_OK;
    ssize_t size = file_read(fd, data, sizeof(data));
    if (size < 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "token-file: cannot read %s: %s", path,
                           strerror(errno));
    else if (!token_is_valid(data, (size_t)size))
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "token-file: %s holds no token; accepted is one line of %d to %d "
                           "printable ASCII characters (openssl rand -hex 32)",
                           path, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX);
    else
        token_set(token, data, (size_t)size);
    explicit_bzero(data, sizeof(data));
    return status;
}

enum status token_read(const char *path, struct token *token, struct error *error)
{
    struct stat stat_of;
    // O_NONBLOCK: does not wait for the writer of a pipe.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &stat_of) != 0) {
        enum status status = error_set(error, STATUS_INVALID_ARGUMENT,
                                       "token-file: cannot read %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    enum status status;
    if (stat_of.st_mode & (S_IROTH | S_IWOTH))
        status = error_set(error, STATUS_PERMISSION_DENIED,
                           "token-file: %s can be read or written by everybody; chmod 0600 %s",
                           path, path);
    else
        status = content_read(fd, path, token, error);
    close(fd);
    return status;
}

bool token_equal(const struct token *a, const struct token *b)
{
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < sizeof(a->text); i++)
        difference |= (uint8_t)(a->text[i] ^ b->text[i]);
    return difference == 0 && a->text[0] != '\0';
}

void token_wipe(struct token *token)
{
    explicit_bzero(token, sizeof(*token));
}
