// SPDX-License-Identifier: Apache-2.0
// Parsers of values as people write them in settings. Each reads the whole text; it returns false
// and leaves the outputs unchanged if the text is invalid.
#ifndef CPATTN_DAEMON_SETTINGS_VALUES_H
#define CPATTN_DAEMON_SETTINGS_VALUES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

// A whole number, min..max.
bool integer_parse(const char *text, int64_t min, int64_t max, int64_t *value);

// The same as an int.
bool int_parse(const char *text, int min, int max, int *value);

// A path, not empty.
bool path_parse(char path[PATH_MAX], const char *text);

// A time of more than 0, up to max_ns.
bool timeout_parse(const char *text, uint64_t max_ns, uint64_t *timeout_ns);

// "4096", "512MiB", "8G": a whole number with a binary unit, at least 1.
bool bytes_parse(const char *text, int64_t *bytes);

// "0,2-3": numbers and ranges as bits, each number once and below DEVICES_MAX.
bool indices_parse(const char *text, uint64_t *named);

// "2h/24h": a time per window, both more than 0, the window up to thirty days.
bool time_in_window_parse(const char *text, uint64_t *time_ns, uint64_t *window_ns);

#endif
