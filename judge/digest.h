// SPDX-License-Identifier: Apache-2.0
// A fingerprint of results: equal bits, equal digests; other bits, other digests for all practical
// purposes. Not meant against an adversary.
#ifndef CPATTN_JUDGE_DIGEST_H
#define CPATTN_JUDGE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_START UINT64_C(0x6370617474656e64)

// The sum of digest_word() (judge/digest_word.h) over words of 8 bytes, of which the last is filled
// up with zeros.
uint64_t digest_sum(const void *data, size_t bytes);

// The digest of what `digest` stands for followed by `bytes` bytes with this sum. Where one call
// ends and the next begins counts: (ab, c) and (a, bc) differ.
uint64_t digest_join(uint64_t digest, uint64_t sum, size_t bytes);

// Both in one.
uint64_t digest_add(uint64_t digest, const void *data, size_t bytes);

#endif
