// SPDX-License-Identifier: Apache-2.0
// Copies between bytes that lie in pieces on either side.
#ifndef CPATTN_TRANSPORT_STRIDED_H
#define CPATTN_TRANSPORT_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How the bytes of one side of a message lie, as in struct region: `blocks` blocks, `block_stride`
// bytes apart, of `rows` pieces of `bytes` bytes, `stride` bytes apart. bytes 0: one behind the
// other.
struct strides {
    int64_t bytes, rows, stride, blocks, block_stride;
};

struct message_strides {
    struct strides send, receive;
};

// Where a message lands in the memory of its receiver.
struct message_place {
    int64_t offset;
    struct strides strides;
};

// Steps on both sides, in bytes.
struct strided_loop {
    int64_t count, from, to;
};

// A copy of `bytes` bytes, repeated by loops, the innermost first.
#define STRIDED_LOOPS_MAX 5
struct strided_copy {
    int64_t bytes;
    int loop_count;
    struct strided_loop loops[STRIDED_LOOPS_MAX];
};

// The copy of `total` bytes, with as few and as long pieces as possible. False: the sides do not
// have so many bytes, or no loops in common.
bool strided_copy_make(const struct strides *from, const struct strides *to, int64_t total,
                       struct strided_copy *copy);

// Bytes from the first to the end of the last; -1: strides are negative, or the number overflows.
int64_t strides_reach(const struct strides *s, int64_t total);

// How often the loops from `first` on run, and where the i-th of these runs begins on both sides.
int64_t strided_runs(const struct strided_copy *copy, int first);
void strided_run(const struct strided_copy *copy, int first, int64_t i, int64_t *from, int64_t *to);

#endif
