// SPDX-License-Identifier: Apache-2.0
// The log of a program: one line of key=value pairs per call on stderr. Libraries and cores do not
// log; a program logs once, where the decision is taken. Lines of several threads do not mix.
#ifndef CPATTN_COMMON_LOG_H
#define CPATTN_COMMON_LOG_H

#include <stdbool.h>

// Numbers are those of syslog and of sd-daemon's "<N>" prefixes.
enum log_level {
    LOG_LEVEL_ERROR = 3,   // needs an operator
    LOG_LEVEL_WARNING = 4, // a fault that the program has handled
    LOG_LEVEL_NOTICE = 5,  // a change of state worth keeping
    LOG_LEVEL_INFO = 6,    // what happened to one request
    LOG_LEVEL_DEBUG = 7,
};

// A longer text is cut and ends in " truncated=N", where N is the number of omitted bytes.
#define LOG_LINE_MAX 8192

// Sets the highest level that is written (LOG_LEVEL_INFO before the first call) and detects whether
// stderr goes to the journal. If it does, lines become journal entries with fields
// (common/journal.h); a line that the journal does not take at once goes to stderr with the prefix
// "<N>". Otherwise lines begin with the time in UTC, as "2031-05-27T09:30:00.125Z ". Call before
// threads are started.
void log_init(enum log_level level);

// True if lines of this level are written. Lets a caller skip the work for a line that is not.
bool log_enabled(enum log_level level);

// Reads "error", "warning", "notice", "info" or "debug"; false for anything else.
bool log_level_parse(const char *name, enum log_level *level);

// Writes "event key=value ...\n". Control characters are written as \n or \x1b, so that a call
// always writes one line. Preserves errno. Does not block: lines are dropped while nobody reads
// them, and "log_dropped lines=N" reports their number when there is room again.
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

// Quotes a value that may hold spaces or quotes, so that machines can parse key=value:
// log_info("rank died cause=%s", log_quote(&(struct log_quoted){0}, cause)). A value that does not
// fit ends in "...".
#define LOG_QUOTED_MAX 1024
struct log_quoted {
    char text[LOG_QUOTED_MAX];
};
const char *log_quote(struct log_quoted *quoted, const char *value);

#endif
