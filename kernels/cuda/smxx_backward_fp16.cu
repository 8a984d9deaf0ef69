// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/smxx_backward_kernel.cuh"

const struct backward_kernel *backward_kernel_fp16(int d_qk, int d_v, int shared_bytes_max)
{
    return backward_kernel_16<__half, false>(d_qk, d_v, shared_bytes_max);
}
