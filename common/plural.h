// SPDX-License-Identifier: Apache-2.0
// Counted nouns in sentences: error_set(error, status, "%d rank%s", n, plural(n)).
#ifndef CPATTN_COMMON_PLURAL_H
#define CPATTN_COMMON_PLURAL_H

// The ending of the noun: "" for one, else "s".
static inline const char *plural(long long count)
{
    return count == 1 ? "" : "s";
}

#endif
