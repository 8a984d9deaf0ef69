// SPDX-License-Identifier: Apache-2.0
// How a process uses its BLAS. Everything else goes through the CBLAS interface itself.
#ifndef CPATTN_COMMON_BLAS_H
#define CPATTN_COMMON_BLAS_H

// Makes the BLAS compute in the calling thread alone, since each rank is a process, and with
// kernels for this processor. Cheap when called again; not to be called while another thread uses
// the BLAS.
void blas_prepare(void);

// The processor that the BLAS has kernels for, for people; "?" where it does not tell.
const char *blas_core_name(void);

#endif
