// SPDX-License-Identifier: Apache-2.0
// Numbers as fields of a case have them, to and from text. Pure.
#ifndef CPATTN_PLAN_NUMBER_H
#define CPATTN_PLAN_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All return false for text that is no such number, and for one that does not fit; *value may be
// changed then.

// Digits only, so that "0x10", "1e3", " 5" and "+5" are refused and not guessed at.
bool number_parse_digits(const char *text, uint64_t *value);

// The same with a '-' before them.
bool number_parse_int(const char *text, int64_t *value);

// The same with k, m or g behind them: "16k" is 16384, "1m" is 1048576.
bool number_parse_tokens(const char *text, int64_t *value);

// Finite, with a decimal point whatever the locale is; no negative zero.
bool number_parse_real(const char *text, double *value);

// The shortest of the two usual precisions that reads back as the same number. Returns the length
// as snprintf does.
int number_print_real(double value, char *text, size_t size);

#endif
