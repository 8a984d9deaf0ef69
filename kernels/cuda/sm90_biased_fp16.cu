// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_backward_kernel.cuh"

const struct sm90_backward_kernel *sm90_biased_fp16(int d, bool ordered)
{
    return sm90_biased_16<__half>(d, ordered);
}
