// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: a counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", 2011). Ten rounds of two 32 x 32 -> 64 bit products. Every block is computed
// directly from its counter, without state. Plain C that also compiles as CUDA.
#ifndef CPATTN_JUDGE_PHILOX_H
#define CPATTN_JUDGE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_INLINE static __host__ __device__ __forceinline__
#else
#define PHILOX_INLINE static inline
#endif

#define PHILOX_ROUNDS       10
#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define PHILOX_KEY_STEP_0   0x9E3779B9u
#define PHILOX_KEY_STEP_1   0xBB67AE85u

struct philox_block {
    uint32_t word[4];
};

// One block of 128 random bits for a counter and a key (low word first).
PHILOX_INLINE struct philox_block philox_block(struct philox_block counter, uint64_t key)
{
    uint32_t c0 = counter.word[0], c1 = counter.word[1];
    uint32_t c2 = counter.word[2], c3 = counter.word[3];
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0;
        uint64_t product1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)product0;
        key0 += PHILOX_KEY_STEP_0;
        key1 += PHILOX_KEY_STEP_1;
    }
    struct philox_block block = {{c0, c1, c2, c3}};
    return block;
}

// The sum of the eight 16-bit halves of a block: 0..8*65535, close to a normal distribution.
PHILOX_INLINE uint32_t philox_half_sum(struct philox_block block)
{
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (block.word[i] & 0xffffu) + (block.word[i] >> 16);
    return sum;
}

#endif
