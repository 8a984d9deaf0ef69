// SPDX-License-Identifier: Apache-2.0
// Digests of results: equal bits have equal digests, different bits in practice different ones. Not
// secure against an adversary.
#ifndef CPATTN_JUDGE_DIGEST_H
#define CPATTN_JUDGE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_START UINT64_C(0x6370617474656e64)

// The sum of digest_word() (judge/digest_word.h) over words of 8 bytes; the last is padded with
// zeros.
uint64_t digest_sum(const void *data, size_t bytes);

// Extends `digest` by `bytes` bytes with this sum. The boundaries of calls matter: (ab, c) and (a,
// bc) differ.
uint64_t digest_join(uint64_t digest, uint64_t sum, size_t bytes);

// Both in one call.
uint64_t digest_add(uint64_t digest, const void *data, size_t bytes);

#endif
