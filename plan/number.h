// SPDX-License-Identifier: Apache-2.0
// Conversion of the numbers in fields of a case to and from text. Pure.
#ifndef CPATTN_PLAN_NUMBER_H
#define CPATTN_PLAN_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All return false for text that is not such a number, and for a number out of range; *value may
// then be changed.

// Digits only; "0x10", "1e3", " 5" and "+5" are refused.
bool number_parse_digits(const char *text, uint64_t *value);

// The same with an optional '-' before the digits.
bool number_parse_int(const char *text, int64_t *value);

// The same with an optional k, m or g behind the digits: "16k" is 16384, "1m" is 1048576.
bool number_parse_tokens(const char *text, int64_t *value);

// Finite, with a decimal point in every locale; no negative zero.
bool number_parse_real(const char *text, double *value);

// The shorter of two precisions that yields the same number when it is read. Returns the length
// as snprintf does.
int number_print_real(double value, char *text, size_t size);

#endif
