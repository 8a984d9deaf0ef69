// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA driver, looked up at run time so that programs start without a driver.
#ifndef CPATTN_TRANSPORT_DRIVER_H
#define CPATTN_TRANSPORT_DRIVER_H

#include <cuda_runtime_api.h>
#include <stddef.h>

// Looks up a driver function in its version of CUDA 12.0; NULL: not available.
static inline void *driver_function(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t result =
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
    cudaError_t result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    return result == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : NULL;
}

#endif
