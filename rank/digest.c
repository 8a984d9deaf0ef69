// SPDX-License-Identifier: Apache-2.0
#include "rank/digest.h"

#include <string.h>

// Both halves of a 128-bit product: every bit of the operands reaches every bit of the result.
static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t digest_add(uint64_t digest, const void *data, size_t bytes)
{
    static const uint64_t word_key = UINT64_C(0xa0761d6478bd642f);
    static const uint64_t end_key = UINT64_C(0xe7037ed1a0b428db);
    const char *at = data;
    uint64_t words = bytes / sizeof(uint64_t);
    for (uint64_t i = 0; i < words; i++, at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        // Counting the words keeps a word that cancels the state from erasing what came before.
        digest = fold(digest ^ word, word_key) + i;
    }
    uint64_t rest = 0;
    if (bytes % sizeof(uint64_t))
        memcpy(&rest, at, bytes % sizeof(uint64_t));
    digest = fold(digest ^ rest, word_key);
    return fold(digest ^ bytes, end_key);
}
