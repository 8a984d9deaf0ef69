// SPDX-License-Identifier: Apache-2.0
// The mistakes that a diagnosis of collectives knows.
#ifndef CPATTN_JUDGE_COLLECTIVE_MISTAKE_H
#define CPATTN_JUDGE_COLLECTIVE_MISTAKE_H

// In the order in which they are tried.
enum collective_mistake {
    MISTAKE_NONE,
    MISTAKE_UNTOUCHED,      // the memory was never written
    MISTAKE_ZERO_SIGN,      // zeros with the wrong sign
    MISTAKE_DENORMAL,       // denormals are zero
    MISTAKE_ZERO,           // all zeros
    MISTAKE_NOT_DIVIDED,    // an average is the sum
    MISTAKE_WORLD_FACTOR,   // P times too large, or too small
    MISTAKE_DIVISOR,        // an average is divided by another number of ranks
    MISTAKE_RANK_MISSING,   // one rank is missing from the reduction
    MISTAKE_RANK_TWICE,     // one rank is reduced twice
    MISTAKE_RANK_ALONE,     // only one rank's elements
    MISTAKE_REDUCTION,      // reduced by another operation
    MISTAKE_WRONG_RANK,     // elements of a wrong rank, such as a wrong root
    MISTAKE_BLOCKS_SWAPPED, // two blocks are exchanged
    MISTAKE_WRONG_BLOCK,    // the elements of another rank's result
    MISTAKE_SHIFTED,        // the right elements, shifted
    MISTAKE_UNREDUCED,      // one rank's elements instead of an average
    MISTAKE_ROTATED,        // each block is that of a rank some places further
    MISTAKE_REVERSED,       // the blocks are in reverse order
    MISTAKE_OWN_SEND,       // all blocks are from the rank itself
    MISTAKE_INTERLEAVED,    // elements, not blocks, of the ranks by turns
    MISTAKE_NARROW_INPUT,   // elements are rounded to 16 bits before they are reduced or sent
    MISTAKE_NARROW_SUM,     // results with the precision of 16 bits
    MISTAKE_LOWER_HALF,     // 64-bit integers computed in 32 bits
    MISTAKE_SATURATED,      // integers that stop at the end of the range
    MISTAKE_FLOATING,       // integers computed as real numbers
    MISTAKE_SIGNED,         // uint8 compared as int8
    MISTAKE_AVERAGE_ROUNDS, // an average of integers is rounded in another way
    MISTAKE_FACTOR,         // all elements have a factor that the limits of elements admit
    COLLECTIVE_MISTAKES
};

#endif
