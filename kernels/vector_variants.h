// SPDX-License-Identifier: Apache-2.0
// The variants that vector.c chooses from. Only vector*.c includes this.
#ifndef CPATTN_KERNELS_VECTOR_VARIANTS_H
#define CPATTN_KERNELS_VECTOR_VARIANTS_H

#include "kernels/vector_ops.h"

#ifdef __x86_64__
extern const struct vector_ops vector_avx512, vector_avx2;
#endif
extern const struct vector_ops vector_plain; // 16-byte compiler vectors, for any machine

#endif
