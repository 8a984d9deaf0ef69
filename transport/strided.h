// SPDX-License-Identifier: Apache-2.0
// Copies between strided memory layouts.
#ifndef CPATTN_TRANSPORT_STRIDED_H
#define CPATTN_TRANSPORT_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Layout of one side of a message, as in struct region: `blocks` blocks, `block_stride` bytes
// apart. A block has `rows` pieces of `bytes` bytes, `stride` bytes apart. bytes 0: contiguous.
struct strides {
    int64_t bytes, rows, stride, blocks, block_stride;
};

struct message_strides {
    struct strides send, receive;
};

// Destination of a message in the memory of its receiver.
struct message_place {
    int64_t offset;
    struct strides strides;
};

// `count` iterations; `from` and `to` are the strides of source and destination in bytes.
struct strided_loop {
    int64_t count, from, to;
};

// A copy of `bytes` contiguous bytes, repeated by nested loops. loops[0] is the innermost.
#define STRIDED_LOOPS_MAX 5
struct strided_copy {
    int64_t bytes;
    int loop_count;
    struct strided_loop loops[STRIDED_LOOPS_MAX];
};

// Finds the copy of `total` bytes between two layouts with the fewest and longest pieces. False: a
// layout does not have `total` bytes, or the two cannot be traversed by common loops.
bool strided_copy_make(const struct strides *from, const struct strides *to, int64_t total,
                       struct strided_copy *copy);

// Bytes from the first byte to the end of the last piece; -1: a member is negative, or overflow.
int64_t strides_reach(const struct strides *s, int64_t total);

// Total number of iterations of the loops from `first` on (a run is one of these iterations), and
// the offsets of the i-th run in source and destination, in bytes.
int64_t strided_runs(const struct strided_copy *copy, int first);
void strided_run(const struct strided_copy *copy, int first, int64_t i, int64_t *from, int64_t *to);

#endif
