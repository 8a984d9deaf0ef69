// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_forward_kernel.cuh"

template <typename T> using traits = sm90_traits<T, 256, 256, 2, 80, 2, 1, false>;

const struct forward_instance forward_sm90_256 =
    sm90_instance_of<traits>(FORWARD_SECTION_BYTES / 8);
