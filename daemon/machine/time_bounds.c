// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/time_bounds.h"

#include <string.h>

#include "common/amx.h"
#include "daemon/core/core.h"
#include "plan/cost.h"

// ---- cores --------------------------------------------------------------------------------------

// Upper bound of processor clocks; the fastest runs at 6.2 GHz.
#define CORE_HZ 6.5e9

// Operations per second of a core. x86-64 has at most two FMA units of 512 bits: 64 operations per
// cycle in fp32, in which the kernels compute whatever the dtype, and 32 in fp64. Other processors
// may have matrix units: the largest computes 16 x 16 fp32 FMAs per cycle.
#ifdef __x86_64__
#define CORE_ATTENTION (64 * CORE_HZ)
#define CORE_REFERENCE (32 * CORE_HZ)
#else
#define CORE_ATTENTION (512 * CORE_HZ)
#define CORE_REFERENCE (256 * CORE_HZ)
#endif

// Input elements that a core draws per second. An element takes twenty 32-bit products
// (judge/philox.h). 32 products per cycle are twice the rate of two 512-bit units.
#define CORE_DRAWN (32.0 / 20 * CORE_HZ)

// AMX multiplies a 16 x 32 by a 32 x 16 tile of 16-bit numbers in 16 cycles: 1024 operations per
// cycle. Kernels and reference use it.
#define CORE_AMX (1024 * CORE_HZ)

static struct device_rates rates_of_cores(int cores)
{
    if (amx_usable())
        return (struct device_rates){CORE_AMX, CORE_AMX, CORE_DRAWN, cores, false};
    return (struct device_rates){CORE_ATTENTION, CORE_REFERENCE, CORE_DRAWN, cores, false};
}

// ---- GPUs ---------------------------------------------------------------------------------------

// Upper bounds in operations per second: the fastest product of each architecture plus a tenth for
// higher clocks. attention: 16-bit dense matrix units; fp32 is slower everywhere. reference: fp64,
// on matrix units if the architecture has them. The comments have the product figures in 1e12.
static const struct arch {
    const char *name;
    double attention, reference;
} archs[] = {
    {"sm_80", 345e12, 22e12},   // A100: 312, 19.5
    {"sm_86", 180e12, 2e12},    // RTX 3090 Ti: 160, 0.63
    {"sm_87", 60e12, 1e12},     // Orin
    {"sm_89", 410e12, 2e12},    // L40S, RTX 6000 Ada: 364, 1.4
    {"sm_90", 1100e12, 74e12},  // H100, H200, GH200: 989, 67
    {"sm_100", 2800e12, 50e12}, // B200, GB200: 2500, 45
    {"sm_103", 2800e12, 50e12}, // B300, GB300: 2500, 1.4
    {"sm_120", 560e12, 4e12},   // RTX PRO 6000: 504, 2
};

// For architectures that are not listed: larger than any.
static const struct arch arch_unknown = {"", 20e15, 1e15};

// Input elements that a GPU draws per second. An element takes twenty 32-bit products. sm_90:
// 132 x 64 products per cycle at 1.98 GHz, 0.8e12 elements per second; sm_120, the fastest:
// 188 x 128 at 2.6 GHz, 3.1e12.
#define GPU_DRAWN 5e12

static struct device_rates rates_of_gpu(const struct wire_device *gpu)
{
    const struct arch *arch = &arch_unknown;
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        if (strcmp(gpu->arch, archs[i].name) == 0)
            arch = &archs[i];
    return (struct device_rates){arch->attention, arch->reference, GPU_DRAWN, 1, true};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

// ---- a machine ----------------------------------------------------------------------------------

struct device_rates time_bounds_rates(const struct wire_description *d, int cores)
{
    if (d->gpu_count == 0)
        return rates_of_cores(cores);
    struct device_rates most = {.devices = d->gpu_count, .gpus = true};
    for (int i = 0; i < d->gpu_count; i++) {
        struct device_rates gpu = rates_of_gpu(&d->gpus[i]);
        most.attention = larger(most.attention, gpu.attention);
        most.reference = larger(most.reference, gpu.reference);
        most.drawn = larger(most.drawn, gpu.drawn);
    }
    return most;
}

void time_bounds_add_host(struct device_rates *rates, int devices)
{
    rates->devices += devices;
    rates->attention = larger(rates->attention, rates->gpus ? arch_unknown.attention : CORE_AMX);
    rates->reference = larger(rates->reference, rates->gpus ? arch_unknown.reference : CORE_AMX);
}

// A rank uses one thread of a core, or one GPU.
uint64_t time_bounds_ns(const struct device_rates *rates, int world_size,
                        const struct case_cost *cost)
{
    int at_work = world_size < rates->devices ? world_size : rates->devices;
    double seconds = cost->drawn / rates->drawn +
                     (cost->forward + cost->backward) / rates->attention +
                     cost->reference / rates->reference;
    double ns = seconds / at_work * 1e9;
    return ns < (double)CORE_COST_MAX_NS ? (uint64_t)ns : CORE_COST_MAX_NS;
}

uint64_t time_bounds_case_ns(const struct device_rates *rates, const struct cp_case *c)
{
    struct case_cost cost;
    case_cost(c, &cost);
    return time_bounds_ns(rates, c->world_size, &cost);
}
