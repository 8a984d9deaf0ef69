// SPDX-License-Identifier: Apache-2.0
// How a word of 64 bits enters a digest (judge/digest.h): mixed with its place, then summed, so
// that words can be taken in any order and by any number of hands. Plain C that a CUDA compiler
// takes as well.
#ifndef CPATTN_JUDGE_DIGEST_WORD_H
#define CPATTN_JUDGE_DIGEST_WORD_H

#include <stdint.h>

#ifdef __CUDACC__
#define DIGEST_INLINE static __host__ __device__ __forceinline__
#else
#define DIGEST_INLINE static inline
#endif

// What word number `index` adds. One to one for words of one place, so that a single word that
// differs always shows.
DIGEST_INLINE uint64_t digest_word(uint64_t word, uint64_t index)
{
    // The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
    uint64_t x = word + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
