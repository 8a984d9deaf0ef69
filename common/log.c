// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/journal.h"

static struct {
    pthread_mutex_t writing;
    enum log_level level;
    bool journal;
    int socket;       // of the journal, for fields; -1: none, and lines go to stderr
    bool torn;        // a line has begun and is not complete
    uint64_t dropped; // lines dropped since the last written one
} logger = {.writing = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL_INFO, .socket = -1};

// systemd puts "device:inode" of the stream it connected into JOURNAL_STREAM. The comparison tells
// whether stderr still is that stream, or the variable was only inherited.
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat stat;
    if (!stream || fstat(STDERR_FILENO, &stat) != 0)
        return false;
    char mine[64];
    snprintf(mine, sizeof(mine), "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
    return strcmp(stream, mine) == 0;
}

void log_init(enum log_level level)
{
    logger.level = level;
    logger.journal = stderr_is_journal();
    const char *path = getenv("CPATTN_JOURNAL_SOCKET"); // for tests
    if (logger.journal && logger.socket < 0)
        logger.socket = journal_connect(path ? path : JOURNAL_SOCKET);
}

bool log_enabled(enum log_level level)
{
    return level <= logger.level;
}

bool log_level_parse(const char *name, enum log_level *level)
{
    static const struct {
        const char *name;
        enum log_level level;
    } names[] = {{"error", LOG_LEVEL_ERROR},
                 {"warning", LOG_LEVEL_WARNING},
                 {"notice", LOG_LEVEL_NOTICE},
                 {"info", LOG_LEVEL_INFO},
                 {"debug", LOG_LEVEL_DEBUG}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i].name) == 0) {
            *level = names[i].level;
            return true;
        }
    }
    return false;
}

// Writes one byte, escaped if it may not stand in a line. Returns the number of characters (1..4).
static size_t byte_escape(unsigned char byte, char out[5])
{
    if (byte == '\n')
        return (size_t)snprintf(out, 5, "\\n");
    if (byte < ' ' || byte >= 0x7f)
        return (size_t)snprintf(out, 5, "\\x%02x", byte);
    out[0] = (char)byte;
    return 1;
}

#define PREFIX_MAX 32

// Room for the prefix, a text of which every byte needs four characters, the note and the newline.
struct line {
    char text[PREFIX_MAX + LOG_LINE_MAX * 4 + 64];
    size_t length;
};

// Writes the level for the journal, which adds the time itself, else the time.
static size_t prefix_write(enum log_level level, char text[PREFIX_MAX])
{
    if (logger.journal)
        return (size_t)snprintf(text, PREFIX_MAX, "<%d>", (int)level);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(text, PREFIX_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
    return length +
           (size_t)snprintf(text + length, PREFIX_MAX - length, ".%03ldZ ", now.tv_nsec / 1000000);
}

// Length of the UTF-8 character at the start of the text, if a line may contain it: 2 to 4 bytes.
// 0: ASCII, a control character (U+0080 to U+009F), or no character.
static size_t character_bytes(const unsigned char *text, size_t length)
{
    static const struct {
        unsigned char first, last; // of the lead bytes
        unsigned char least, most; // of the second byte
        size_t bytes;
    } forms[] = {
        {0xc2, 0xc2, 0xa0, 0xbf, 2}, {0xc3, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t bytes = forms[i].bytes;
        if (text[0] < forms[i].first || text[0] > forms[i].last)
            continue;
        bool whole = bytes <= length && text[1] >= forms[i].least && text[1] <= forms[i].most;
        for (size_t k = 2; whole && k < bytes; k++)
            whole = (text[k] & 0xc0) == 0x80;
        return whole ? bytes : 0;
    }
    return 0;
}

static void line_append(struct line *line, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t bytes = character_bytes((const unsigned char *)text + i, length - i);
        if (bytes > 0)
            memcpy(line->text + line->length, text + i, bytes);
        line->length +=
            bytes > 0 ? bytes : byte_escape((unsigned char)text[i], line->text + line->length);
        i += bytes > 0 ? bytes : 1;
    }
}

// Writes one piece of at most PIPE_BUF bytes, which a pipe with room takes as a whole. False if the
// write would block. Does not make the descriptor non-blocking, because other processes may share
// it.
static bool piece_write(const char *text, size_t length)
{
    for (;;) {
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        ssize_t written = send(STDERR_FILENO, text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (written < 0 && errno == ENOTSOCK)
            written = poll(&room, 1, 0) == 1 ? write(STDERR_FILENO, text, length) : -1;
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        logger.torn = true;
        text += written;
        length -= (size_t)written;
        if (length == 0)
            return true;
    }
}

static bool text_write(const char *text, size_t length)
{
    for (size_t done = 0, piece; done < length; done += piece) {
        piece = length - done < PIPE_BUF ? length - done : PIPE_BUF;
        if (!piece_write(text + done, piece))
            return false;
    }
    logger.torn = false;
    return true;
}

// Sends the line, without its prefix and newline, to the journal. False: there is no journal, or it
// does not take the entry.
static bool entry_send(enum log_level level, const struct line *line, size_t prefix)
{
    static char entry[JOURNAL_ROOM(sizeof(line->text))]; // one at a time
    size_t length = line->length - prefix - 1;
    if (logger.socket < 0)
        return false;
    return journal_send(logger.socket, entry,
                        journal_compose((int)level, program_invocation_short_name,
                                        line->text + prefix, length, entry));
}

// Writes a line to stderr, or counts it as dropped. Before it, ends an incomplete earlier line and
// reports dropped lines.
static void line_flush(const struct line *line)
{
    char note[64];
    if (logger.torn)
        text_write("\n", 1);
    if (logger.dropped > 0) {
        int length =
            snprintf(note, sizeof(note), "log_dropped lines=%" PRIu64 "\n", logger.dropped);
        if (!logger.torn && text_write(note, (size_t)length))
            logger.dropped = 0;
    }
    if (logger.torn || logger.dropped > 0 || !text_write(line->text, line->length))
        logger.dropped++;
}

void log_write(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    int saved_errno = errno;
    char text[LOG_LINE_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t length = wanted < 0 ? 0 : (size_t)wanted;
    size_t kept = length < LOG_LINE_MAX ? length : LOG_LINE_MAX;

    struct line line;
    size_t prefix = prefix_write(level, line.text);
    line.length = prefix;
    line_append(&line, text, kept);
    if (kept < length)
        line.length +=
            (size_t)snprintf(line.text + line.length, 64, " truncated=%zu", length - kept);
    line.text[line.length++] = '\n';
    pthread_mutex_lock(&logger.writing);
    if (!entry_send(level, &line, prefix))
        line_flush(&line);
    pthread_mutex_unlock(&logger.writing);
    errno = saved_errno;
}

const char *log_quote(struct log_quoted *quoted, const char *value)
{
    static const char end[] = "...\"";
    char *out = quoted->text;
    char *limit = quoted->text + sizeof(quoted->text) - sizeof(end) - 2;
    *out++ = '"';
    for (; *value && out < limit; value++) {
        if (*value == '"' || *value == '\\')
            *out++ = '\\';
        *out++ = *value;
    }
    strcpy(out, *value ? end : "\"");
    return quoted->text;
}
