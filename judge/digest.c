// SPDX-License-Identifier: Apache-2.0
#include "judge/digest.h"

#include <string.h>

#include "judge/digest_word.h"

uint64_t digest_sum(const void *data, size_t bytes)
{
    const char *at = data;
    uint64_t words = bytes / sizeof(uint64_t), sum = 0, word;
    for (uint64_t i = 0; i < words; i++, at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sum += digest_word(word, i);
    }
    size_t rest = bytes % sizeof(word);
    if (rest == 0)
        return sum;
    word = 0;
    memcpy(&word, at, rest);
    return sum + digest_word(word, words);
}

// XOR of the halves of a 128-bit product. Every bit of the operands affects every bit of the
// result.
static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t digest_join(uint64_t digest, uint64_t sum, size_t bytes)
{
    digest = fold(digest ^ sum, UINT64_C(0xa0761d6478bd642f));
    return fold(digest ^ bytes, UINT64_C(0xe7037ed1a0b428db));
}

uint64_t digest_add(uint64_t digest, const void *data, size_t bytes)
{
    return digest_join(digest, digest_sum(data, bytes), bytes);
}
