// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_forward_kernel.cuh"

template <typename T> using with_max = sm90_traits<T, 192, 128, 3, 80, 3, 1, false, SM90_MAX>;
template <typename T>
using with_cap = sm90_traits<T, 192, 128, 2, 128, 2, 1, false, SM90_MAX | SM90_CAP>;
template <typename T>
using with_bias = sm90_traits<T, 192, 128, 3, 64, 2, 1, false, SM90_MAX | SM90_BIAS, 2>;
template <typename T>
using with_both = sm90_traits<T, 192, 128, 2, 80, 2, 1, false, SM90_MAX | SM90_CAP | SM90_BIAS, 3>;

const struct forward_sm90_features forward_sm90_features_192_128 = {
    sm90_instance_of<with_max>(FORWARD_SECTION_BYTES / 8),
    sm90_instance_of<with_cap>(FORWARD_SECTION_BYTES / 8),
    sm90_instance_of<with_bias>(FORWARD_SECTION_BYTES / 8),
    sm90_instance_of<with_bias>(FORWARD_SECTION_BYTES / 8),
    sm90_instance_of<with_both>(FORWARD_SECTION_BYTES / 8)};
