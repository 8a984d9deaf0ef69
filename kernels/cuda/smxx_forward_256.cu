// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/smxx_forward_kernel.cuh"

template <typename T> using plain_traits = forward_traits<T, 256, 256, 1, 64, false, false>;
template <typename T> using general_traits = forward_traits<T, 256, 256, 1, 64, true, false>;

const struct forward_instance forward_256 = forward_instance_of<plain_traits, general_traits, 2>();
