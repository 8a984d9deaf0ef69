// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_forward_kernel.cuh"

template <typename T> using traits = sm90_traits<T, 192, 128, 3, 80, 3, 1, false>;

const struct forward_instance forward_sm90_192_128 =
    sm90_instance_of<traits>(FORWARD_SECTION_BYTES / 8);
