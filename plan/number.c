// SPDX-License-Identifier: Apache-2.0
#include "plan/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool number_parse_digits(const char *text, uint64_t *value)
{
    uint64_t sum = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(sum, UINT64_C(10), &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*text - '0'), &sum))
            return false;
    }
    *value = sum;
    return true;
}

bool number_parse_int(const char *text, int64_t *value)
{
    bool negative = *text == '-';
    uint64_t magnitude;
    if (!number_parse_digits(text + negative, &magnitude) || magnitude > INT64_MAX)
        return false;
    *value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

bool number_parse_tokens(const char *text, int64_t *value)
{
    char digits[24];
    size_t length = strlen(text);
    char unit = length > 0 ? text[length - 1] : '\0';
    int64_t factor = unit == 'k' || unit == 'K'   ? 1024
                     : unit == 'm' || unit == 'M' ? 1048576
                     : unit == 'g' || unit == 'G' ? 1073741824
                                                  : 1;
    if (factor == 1)
        return number_parse_int(text, value);
    if (length > sizeof digits)
        return false;
    memcpy(digits, text, length - 1);
    digits[length - 1] = '\0';
    return number_parse_int(digits, value) && !__builtin_mul_overflow(*value, factor, value);
}

// The "C" locale costs nothing to open; the process may run under one that writes a decimal comma.
static locale_t locale_neutral(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool number_parse_real(const char *text, double *value)
{
    if (!*text || text[strspn(text, "0123456789.eE+-")])
        return false;
    locale_t neutral = locale_neutral();
    char *end;
    double parsed = strtod_l(text, &end, neutral);
    freelocale(neutral);
    if (*end || !isfinite(parsed))
        return false;
    *value = parsed == 0 ? 0 : parsed; // no negative zero
    return true;
}

int number_print_real(double value, char *text, size_t size)
{
    locale_t neutral = locale_neutral(), previous = uselocale(neutral);
    int length = snprintf(text, size, "%.15g", value);
    if (length >= 0 && (size_t)length < size && strtod(text, NULL) != value)
        length = snprintf(text, size, "%.17g", value);
    uselocale(previous);
    freelocale(neutral);
    return length;
}
