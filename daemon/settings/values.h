// SPDX-License-Identifier: Apache-2.0
// Values of settings as people write them. Each reads the whole text; false, with the outputs
// untouched, where it is anything else.
#ifndef CPATTN_DAEMON_SETTINGS_VALUES_H
#define CPATTN_DAEMON_SETTINGS_VALUES_H

#include <stdbool.h>
#include <stdint.h>

// A whole number, min..max.
bool integer_parse(const char *text, int64_t min, int64_t max, int64_t *value);

// "4096", "512MiB", "8G": a whole number with a binary unit, at least 1.
bool bytes_parse(const char *text, int64_t *bytes);

// "0,2-3": bits of the numbers and ranges, each number once, all of them below DEVICES_MAX.
bool indices_parse(const char *text, uint64_t *named);

// "2h/24h": a time in a window, each more than 0, the window up to thirty days.
bool time_in_window_parse(const char *text, uint64_t *time_ns, uint64_t *window_ns);

#endif
