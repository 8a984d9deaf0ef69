// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/probe.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/limits.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "rank/provider_probe.h"

#define EXIT_UNAVAILABLE 69 // of sysexits.h

struct version {
    int major, minor;
};

static struct version version_of(int number)
{
    return (struct version){number / 1000, number % 1000 / 10};
}

// Prints why the driver shows no device, and returns the exit status.
static int nothing_shown(cudaError_t result)
{
    int driver = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct version needed = version_of(CUDART_VERSION);
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    struct version found = version_of(driver);
    if (driver == 0)
        fprintf(stderr, "no NVIDIA driver is installed: libcuda.so.1 cannot be loaded\n");
    else if (result == cudaErrorInsufficientDriver)
        fprintf(stderr,
                "the NVIDIA driver is too old: it knows CUDA %d.%d, and this build needs %d.%d\n",
                found.major, found.minor, needed.major, needed.minor);
    else if (result == cudaSuccess || result == cudaErrorNoDevice)
        fprintf(stderr, "the NVIDIA driver shows no device%s%s%s\n",
                visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                visible ? "\")" : "");
    else
        fprintf(stderr, "the NVIDIA driver does not work: %s (%s)\n", cudaGetErrorString(result),
                cudaGetErrorName(result));
    return EXIT_UNAVAILABLE;
}

// True if a backend can be created on a device. This creates a context, which is slow, so it is
// called for one device of each compute capability.
static bool is_usable(int device, struct error *error)
{
    struct attention_backend *backend;
    cudaError_t result = cudaSetDevice(device);
    if (result != cudaSuccess) {
        error_set(error, STATUS_UNAVAILABLE, "%s (%s)", cudaGetErrorString(result),
                  cudaGetErrorName(result));
        return false;
    }
    if (backend_cuda.create(&backend, error) != STATUS_OK)
        return false;
    backend_cuda.destroy(backend);
    return true;
}

// A compute capability.
struct kind {
    struct version version;
    bool usable;
};

// True if the device, or an earlier device of the same compute capability, is usable.
static bool kind_is_usable(int device, const struct cudaDeviceProp *properties, struct kind *kinds,
                           int *kind_count)
{
    struct error error;
    for (int i = 0; i < *kind_count; i++)
        if (kinds[i].version.major == properties->major &&
            kinds[i].version.minor == properties->minor)
            return kinds[i].usable;
    bool usable = is_usable(device, &error);
    if (!usable)
        fprintf(stderr, "device %d (%s, sm_%d%d) cannot be used: %s\n", device, properties->name,
                properties->major, properties->minor, error.text);
    kinds[(*kind_count)++] =
        (struct kind){.version = {properties->major, properties->minor}, .usable = usable};
    return usable;
}

int probe_provider(const char *name, const char *device)
{
    cudaError_t result = cudaSetDevice(atoi(device));
    if (result != cudaSuccess)
        fprintf(stderr, "device %s: %s\n", device, cudaGetErrorString(result));
    return provider_probe(name, &backend_cuda);
}

int probe_run(void)
{
    struct kind kinds[DEVICES_MAX];
    int count = 0, kind_count = 0, usable = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0)
        return nothing_shown(result);
    for (int device = 0; device < count && device < DEVICES_MAX; device++) {
        struct cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
            !kind_is_usable(device, &properties, kinds, &kind_count))
            continue;
        printf("device %d sm_%d%d %zu MiB %s\n", device, properties.major, properties.minor,
               properties.totalGlobalMem >> 20, properties.name);
        usable++;
    }
    return usable > 0 ? EXIT_SUCCESS : EXIT_UNAVAILABLE;
}
