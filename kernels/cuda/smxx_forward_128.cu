// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/smxx_forward_kernel.cuh"

template <typename T> using plain_traits = forward_traits<T, 128, 128, 2, 64, false, false>;
template <typename T> using general_traits = forward_traits<T, 128, 128, 2, 64, true, false>;

const struct forward_instance forward_128 = forward_instance_of<plain_traits, general_traits, 2>();
