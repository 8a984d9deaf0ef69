// SPDX-License-Identifier: Apache-2.0
// The mistakes that the diagnosis of collectives recognizes. P: the number of ranks.
#ifndef CPATTN_JUDGE_COLLECTIVE_MISTAKE_H
#define CPATTN_JUDGE_COLLECTIVE_MISTAKE_H

// In the order in which they are tried.
enum collective_mistake {
    MISTAKE_NONE,
    MISTAKE_UNTOUCHED,      // the memory was never written
    MISTAKE_ZERO_SIGN,      // zeros with the wrong sign
    MISTAKE_DENORMAL,       // denormals are flushed to zero
    MISTAKE_ZERO,           // all zeros
    MISTAKE_NOT_DIVIDED,    // the sum instead of the average
    MISTAKE_WORLD_FACTOR,   // results are P times too large, or too small
    MISTAKE_DIVISOR,        // the average has another divisor than P
    MISTAKE_RANK_MISSING,   // one rank is missing from the reduction
    MISTAKE_RANK_TWICE,     // one rank is reduced twice
    MISTAKE_RANK_ALONE,     // the reduction has only one rank's elements
    MISTAKE_REDUCTION,      // reduced by another operation
    MISTAKE_WRONG_RANK,     // elements are from a wrong rank, such as a wrong root
    MISTAKE_BLOCKS_SWAPPED, // two blocks are exchanged
    MISTAKE_WRONG_BLOCK,    // elements are those of another rank's result
    MISTAKE_SHIFTED,        // the right elements, shifted
    MISTAKE_UNREDUCED,      // one rank's elements instead of an average
    MISTAKE_ROTATED,        // the blocks are rotated
    MISTAKE_REVERSED,       // the blocks are in reverse order
    MISTAKE_OWN_SEND,       // all blocks are from the rank itself
    MISTAKE_INTERLEAVED,    // elements of the ranks alternate instead of blocks
    MISTAKE_NARROW_INPUT,   // elements are rounded to 16 bits before they are reduced or sent
    MISTAKE_NARROW_SUM,     // results have only the precision of a 16-bit dtype
    MISTAKE_LOWER_HALF,     // 64-bit integers computed in 32 bits
    MISTAKE_SATURATED,      // integers saturate instead of wrapping around
    MISTAKE_FLOATING,       // integers are computed in floating point
    MISTAKE_SIGNED,         // uint8 is compared as int8
    MISTAKE_AVERAGE_ROUNDS, // averages of integers are rounded in another way
    MISTAKE_BLOCK_SUMS,     // each block is a sum of other ranks (judge/collective_blocks.h)
    MISTAKE_FACTOR,         // all elements have the same wrong factor, maybe within their limits
    COLLECTIVE_MISTAKES
};

#endif
