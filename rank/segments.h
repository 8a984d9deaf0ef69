// SPDX-License-Identifier: Apache-2.0
// The shared memory of a client's tensors on a rank: given inputs and wanted results.
//
// The seals of this memory do not prevent a client from freeing pages of the results while a rank
// writes them. So the rank never stores there directly: a system call copies, and reports an error
// if a page is missing.
#ifndef CPATTN_RANK_SEGMENTS_H
#define CPATTN_RANK_SEGMENTS_H

#include <stddef.h>

#include "judge/source.h"
#include "plan/places.h"

struct segments {
    struct whole_places places;
    char *given, *wanted; // mapped; NULL: none
    size_t given_bytes, wanted_bytes;
    struct input_source source; // of the given tensors
};

// Maps the descriptors of given and wanted tensors (-1: none) and closes them, also on failure. `c`
// is the case without a source, and must outlive `s`. INVALID_ARGUMENT: the memory is too small for
// its tensors; RESOURCE_EXHAUSTED: no address space.
enum status segments_open(struct segments *s, const struct cp_case *c,
                          const struct places_frame *frame, const int fds[2],
                          struct error *error) MUST_CHECK;
void segments_close(struct segments *s); // accepts a zeroed struct

// Copies bytes to an offset in the memory of wanted tensors. RESOURCE_EXHAUSTED: the system has no
// page for them.
enum status segments_put(const struct segments *s, int64_t offset, const void *data, size_t bytes,
                         struct error *error) MUST_CHECK;

#endif
