// SPDX-License-Identifier: Apache-2.0
#include "common/journal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Longest field name that the journal accepts.
#define FIELD_MAX 64

int journal_connect(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(name.sun_path))
        return -1;
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

// Writes "CPATTN_" and the key in capitals. Returns the length; 0: the key is not a valid field
// name.
static size_t name_write(const char *key, size_t length, char *out)
{
    static const char prefix[] = "CPATTN_";
    size_t at = sizeof(prefix) - 1;
    if (length == 0 || at + length > FIELD_MAX)
        return 0;
    memcpy(out, prefix, at);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)key[i]) && key[i] != '_')
            return 0;
        out[at++] = (char)toupper((unsigned char)key[i]);
    }
    return at;
}

// Writes the value that begins here without its quotes and escapes. Returns its length in the line.
static size_t value_write(const char *value, size_t length, char *out, size_t *written)
{
    bool quoted = length > 0 && value[0] == '"';
    size_t at = quoted;
    *written = 0;
    while (at < length && value[at] != (quoted ? '"' : ' ')) {
        if (quoted && value[at] == '\\' && at + 1 < length &&
            (value[at + 1] == '"' || value[at + 1] == '\\'))
            at++;
        out[(*written)++] = value[at++];
    }
    return quoted && at < length ? at + 1 : at;
}

static size_t event_length(const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    size_t word = space ? (size_t)(space - line) : length;
    return memchr(line, '=', word) ? 0 : word;
}

size_t journal_compose(int priority, const char *identifier, const char *line, size_t length,
                       char *out)
{
    size_t event = event_length(line, length);
    size_t size = (size_t)sprintf(out, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%.32s\nMESSAGE=%.*s\n",
                                  priority, identifier, (int)length, line);
    if (event > 0)
        size += (size_t)sprintf(out + size, "CPATTN_EVENT=%.*s\n", (int)event, line);
    for (size_t at = event; at < length;) {
        at += line[at] == ' ';
        const char *sign = memchr(line + at, '=', length - at);
        if (!sign)
            break;
        size_t key = (size_t)(sign - line) - at, written;
        size_t name = name_write(line + at, key, out + size);
        at += key + 1;
        at += value_write(line + at, length - at, out + size + name + 1, &written);
        out[size + name] = '=';
        out[size + name + 1 + written] = '\n';
        size += name > 0 ? name + written + 2 : 0;
    }
    return size;
}

bool journal_send(int fd, const char *entry, size_t size)
{
    return send(fd, entry, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}
