// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/delay_cuda.h"

__device__ static unsigned long long timer_ns(void)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ static void delay_kernel(uint32_t ns)
{
    unsigned long long start = timer_ns();
    while (timer_ns() - start < ns)
        __nanosleep(1000);
}

cudaError_t delay_cuda(cudaStream_t stream, uint32_t ns)
{
    delay_kernel<<<1, 32, 0, stream>>>(ns);
    return cudaGetLastError();
}
