// SPDX-License-Identifier: Apache-2.0
// Quantities with three digits and a suitable unit.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_UNITS_H
#define CPATTN_CLIENT_SUBMIT_SHOW_UNITS_H

#include <stdint.h>

#define UNITS_TEXT_MAX 32

// "1.27 ms", "3 MiB", "12.9 GFLOP", "0". Each returns `text`.
const char *units_time(double seconds, char text[UNITS_TEXT_MAX]);
const char *units_bytes(int64_t bytes, char text[UNITS_TEXT_MAX]);
const char *units_flops(double flops, char text[UNITS_TEXT_MAX]);

// 1, 2 or 5 times a power of ten: the step of an axis from 0 to `all` > 0.
double units_step(double all);

#endif
