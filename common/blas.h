// SPDX-License-Identifier: Apache-2.0
// Settings of the BLAS of this process. Computations call the CBLAS interface directly.
#ifndef CPATTN_COMMON_BLAS_H
#define CPATTN_COMMON_BLAS_H

// Makes the BLAS compute in the calling thread only, since each rank is a process, with kernels for
// this processor. Later calls are cheap. Must not be called while another thread uses the BLAS.
void blas_prepare(void);

// Name of the processor whose kernels the BLAS uses, for people; "?" if it is not known.
const char *blas_core_name(void);

#endif
