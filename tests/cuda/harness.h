// SPDX-License-Identifier: Apache-2.0
// The framework of test programs that run on a device. The programs need only the C library and the
// driver, so that they run on a bare GPU node.
//
// A program prints TAP and ends with status 0, 1 if a test failed, or 77 without a device.
// Arguments select the tests whose names contain one of them. In the environment:
//     CPATTN_TEST_SEED   seed of all random numbers; unset: another seed in each run. The program
//                        prints the seed first.
//     CPATTN_TEST_SMALL  not empty: small sizes, for tools that slow the device down a hundredfold
#ifndef CPATTN_TESTS_CUDA_HARNESS_H
#define CPATTN_TESTS_CUDA_HARNESS_H

#include "kernels/backend.h"
#include "kernels/cuda/backend.h"

struct harness_test {
    const char *name;
    void (*run)(void);
};

// Runs the selected tests in order and returns the exit status for main(). The seed of a test
// depends only on the program's seed and the test's name.
int harness_run(const struct harness_test *tests, int count, int argc, char **argv);

// Exist while tests run.
extern struct attention_backend *harness_cuda, *harness_cpu;

bool harness_small(void); // CPATTN_TEST_SMALL is set and not empty

// True if attention kernels on this device support folds (op_needs.folds); else prints a comment.
bool harness_folds(void);

// Uniform random numbers: any 64 bits; 0..n-1; [-1, 1); low..high.
uint64_t harness_random(void);
int64_t harness_below(int64_t n);
float harness_uniform(void);
int64_t harness_between(int64_t low, int64_t high);

// Fails the test and prints a message if the condition is false. The test continues. Only the first
// messages of a test are printed.
#define EXPECT(condition, ...)                                                                     \
    ((condition) ? (void)0 : harness_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
void harness_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Prints a comment.
void harness_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Ends the program if a call of the CUDA runtime fails.
#define CUDA(call) harness_cuda_check((call), __FILE__, __LINE__, #call)
void harness_cuda_check(cudaError_t error, const char *file, int line, const char *call);

// Waits for the CUDA backend's stream. An error fails the test; a sticky error ends the program.
void harness_finish(void);

// ---- memory on host and device ----

// A host buffer and a device buffer of the same size. Guard bytes surround the device buffer,
// except with CPATTN_TEST_SMALL. All bits of both are initially 1, which is NaN in every dtype.
struct twin {
    char *host, *device;
    size_t bytes;
    char *guarded; // the whole device allocation, with guards
};

// `skew`: address of the device buffer modulo 256.
struct twin twin_create(size_t bytes, size_t skew);
void twin_push(const struct twin *t); // host -> device
// Waits for the CUDA backend's stream. Returns a copy of the device buffer, which the caller frees.
void *twin_fetch(const struct twin *t) __attribute__((malloc));
// Frees both buffers. The test fails if a guard byte has changed.
void twin_destroy(struct twin *t);

// Fill the host buffer with uniform random numbers of [-scale, scale), in fp32 or rounded to dtype.
void twin_fill_floats(const struct twin *t, float scale);
void twin_fill_dtype(const struct twin *t, enum case_dtype dtype, float scale);

// ---- prepared operations ----

// A prepared attention operation of the CUDA backend, ready to be launched, with its memory.
struct prepared {
    struct attention_work *work;
    struct op_needs needs;
    struct twin table, zeros, scratch;
};

struct prepared prepared_create(const struct attention_op *op);
void prepared_destroy(struct prepared *x);

#endif
