// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/smxx_forward.cuh"

template <typename T>
static cudaError_t launch(const struct forward_work &work, bool plain, cudaStream_t stream)
{
    if (plain)
        return forward_launch_instance<forward_traits<T, 192, 128, 2, 64, false, false>, 2>(work,
                                                                                            stream);
    return forward_launch_instance<forward_traits<T, 192, 128, 2, 64, true, false>, 2>(work,
                                                                                       stream);
}

cudaError_t forward_launch_192_128(const struct forward_work &work, enum case_dtype dtype,
                                   bool plain, cudaStream_t stream)
{
    return dtype == DTYPE_BF16 ? launch<__nv_bfloat16>(work, plain, stream)
                               : launch<__half>(work, plain, stream);
}
