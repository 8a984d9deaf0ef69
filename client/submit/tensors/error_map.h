// SPDX-License-Identifier: Apache-2.0
// Maps of errors: the error of each chunk of the sequence and each head, as a picture or as text.
// Pure apart from the stream.
#ifndef CPATTN_CLIENT_SUBMIT_TENSORS_ERROR_MAP_H
#define CPATTN_CLIENT_SUBMIT_TENSORS_ERROR_MAP_H

#include <stdio.h>

#include "client/submit/tensors/tensors.h"

// Errors of one tensor: [heads][chunks], RMS of the error over all sequences / RMS of the expected
// values of the whole tensor. Infinite if an element is finite, or NaN, in only one of the two.
struct error_map {
    enum whole_tensor tensor;
    int heads, chunks;
    double *errors; // owned
    double unit;    // an error of this size is rounding
    double largest; // of `errors`
};

// Makes the map of out, dq, dk or dv. RESOURCE_EXHAUSTED. error_map_fini().
enum status error_map_init(struct error_map *map, const struct cp_case *c, enum whole_tensor tensor,
                           const void *got, const void *expected, struct error *error) MUST_CHECK;
void error_map_fini(struct error_map *map); // accepts a zeroed struct

// Creates maps of out, dq, dk and dv, as far as `t` has their results and expected results.
#define ERROR_MAPS_MAX 4
enum status error_maps_init(struct error_map maps[ERROR_MAPS_MAX], int *count,
                            const struct cp_case *c, const struct tensors *t,
                            struct error *error) MUST_CHECK;

// A character for each chunk and head: '.' is rounding, digits are tenfold steps above it, '#' is
// not finite. Heads are rows; if there are many, a row shows the worst of several heads.
void error_map_print(const struct error_map *map, const struct cp_case *c, FILE *out);

// Draws all maps in one SVG picture. The caller checks the stream for errors.
void error_maps_svg(const struct error_map *maps, int count, const struct cp_case *c, FILE *out);

#endif
