// SPDX-License-Identifier: Apache-2.0
// The contribution of a 64-bit word to a digest (judge/digest.h). Each word is mixed with its
// index, and the contributions are added, so words can be processed in any order and in parallel.
// Plain C that also compiles as CUDA.
#ifndef CPATTN_JUDGE_DIGEST_WORD_H
#define CPATTN_JUDGE_DIGEST_WORD_H

#include <stdint.h>

#ifdef __CUDACC__
#define DIGEST_INLINE static __host__ __device__ __forceinline__
#else
#define DIGEST_INLINE static inline
#endif

// The contribution of word number `index`. Different words at one index have different
// contributions, so a single different word always changes digest_sum().
DIGEST_INLINE uint64_t digest_word(uint64_t word, uint64_t index)
{
    // The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
    uint64_t x = word + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
