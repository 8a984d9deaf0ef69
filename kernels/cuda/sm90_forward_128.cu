// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_forward_kernel.cuh"

template <typename T> using traits = sm90_traits<T, 128, 128, 3, 80, 3, 2, false>;

const struct forward_instance forward_sm90_128 =
    sm90_instance_of<traits>(FORWARD_SECTION_BYTES / 8, FORWARD_SECTION_BYTES / 32);
