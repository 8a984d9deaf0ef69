// SPDX-License-Identifier: Apache-2.0
// Draws inputs. Compiled once for each instruction set; the variant is chosen at run time. All
// variants draw the same bits.
#ifndef CPATTN_JUDGE_DRAW_H
#define CPATTN_JUDGE_DRAW_H

#include "judge/input_shape.h"

struct draw_ops {
    const char *name;
    // Fills values[i] with element first + i of an input, before it is rounded to the dtype. Any
    // alignment of `values`, any count >= 0.
    void (*draw)(const struct input_draw *draw, uint64_t first, int64_t count, float *values);
};

// The fastest variant that this machine supports.
const struct draw_ops *draw_best(void);

// All variants that this machine supports, fastest first; NULL ends the list. For tests.
#define DRAW_VARIANTS_MAX 4
void draw_list(const struct draw_ops *variants[DRAW_VARIANTS_MAX]);

// The variants, for draw.c only.
#ifdef __x86_64__
extern const struct draw_ops draw_avx512, draw_avx2;
#endif
extern const struct draw_ops draw_plain; // 16-byte vectors of the compiler, for any machine

#endif
