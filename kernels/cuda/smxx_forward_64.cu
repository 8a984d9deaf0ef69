// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/smxx_forward_kernel.cuh"

template <typename T> using plain_traits = forward_traits<T, 64, 64, 2, 96, false, true>;
template <typename T> using general_traits = forward_traits<T, 64, 64, 2, 64, true, true>;

const struct forward_instance forward_64 = forward_instance_of<plain_traits, general_traits, 2>();
