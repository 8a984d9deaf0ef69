// SPDX-License-Identifier: Apache-2.0
// Durations as text.
#ifndef CPATTN_COMMON_DURATION_H
#define CPATTN_COMMON_DURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DURATION_SYNTAX   "a length of time such as 90, 90s, 1.5s, 250ms, 10us, 2m or 1h"
#define DURATION_TEXT_MAX 24

// Parses a decimal number with an optional unit (ns, us, ms, s, m, h; default: seconds). Returns
// false and leaves *ns unchanged if `text` has another form, is negative or exceeds 2^63 - 1 ns.
bool duration_parse(const char *text, uint64_t *ns);

// Writes a time with three significant digits and a suitable unit: "417 us", "1.35 ms", "12.0 s",
// "3 m 05 s", "2 h 10 m". Returns `text`, which has room for DURATION_TEXT_MAX bytes.
const char *duration_format(uint64_t ns, char *text, size_t size);

// Writes a time in the syntax of duration_parse(), rounded up to two significant digits in us, ms
// or s: "12s", "1.3s", "350ms"; at least "1us". Returns `text`, which has room for
// DURATION_TEXT_MAX bytes.
const char *duration_ask(uint64_t ns, char *text, size_t size);

#endif
