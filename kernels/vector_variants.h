// SPDX-License-Identifier: Apache-2.0
// The variants that vector.c chooses from; for vector*.c alone.
#ifndef CPATTN_KERNELS_VECTOR_VARIANTS_H
#define CPATTN_KERNELS_VECTOR_VARIANTS_H

#include "kernels/vector_ops.h"

#ifdef __x86_64__
extern const struct vector_ops vector_avx512, vector_avx2;
#endif
extern const struct vector_ops vector_plain; // 16-byte vectors of the compiler, for any machine

#endif
