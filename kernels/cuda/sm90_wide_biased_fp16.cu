// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_wide_kernel.cuh"

const struct sm90_backward_kernel *sm90_wide_biased_fp16(int d_qk, int d_v)
{
    return sm90_wide_biased_16<__half>(d_qk, d_v);
}
