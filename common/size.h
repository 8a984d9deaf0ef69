// SPDX-License-Identifier: Apache-2.0
// Memory sizes as text.
#ifndef CPATTN_COMMON_SIZE_H
#define CPATTN_COMMON_SIZE_H

#include <stddef.h>
#include <stdint.h>

#define SIZE_TEXT_MAX 16

// Writes a number of bytes (negative: as 0) with three significant digits and a suitable unit:
// "512 B", "38.4 MiB", "1.50 GiB". Returns `text`.
const char *size_format(int64_t bytes, char text[SIZE_TEXT_MAX]);

#endif
