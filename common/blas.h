// SPDX-License-Identifier: Apache-2.0
// Settings of the BLAS of this process. Computations call the CBLAS interface directly.
#ifndef CPATTN_COMMON_BLAS_H
#define CPATTN_COMMON_BLAS_H

// Makes the BLAS compute in the calling thread only, since each rank is a process, and use the
// kernels for this processor. Later calls are cheap. No other thread may use the BLAS meanwhile.
void blas_prepare(void);

// Name of the processor type whose kernels the BLAS uses, for messages; "?" if unknown.
const char *blas_core_name(void);

#endif
