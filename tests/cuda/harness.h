// SPDX-License-Identifier: Apache-2.0
// The main part of test programs that run on a device. They need only the C library and the driver,
// so that they run on a bare GPU node.
//
// A program prints TAP and ends with status 0, 1 if a test failed, or 77 without a device.
// Arguments select the tests whose names contain one of them. In the environment:
//     CPATTN_TEST_SEED   of all random numbers; else another one each time, printed first
//     CPATTN_TEST_SMALL  not empty: sizes for tools that slow the device down a hundred times
#ifndef CPATTN_TESTS_CUDA_HARNESS_H
#define CPATTN_TESTS_CUDA_HARNESS_H

#include "kernels/backend.h"
#include "kernels/cuda/backend.h"

struct harness_test {
    const char *name;
    void (*run)(void);
};

// For main(): runs the tests in order. Each has its own seed, which does not depend on the other
// tests.
int harness_run(const struct harness_test *tests, int count, int argc, char **argv);

// Both backends, while tests run.
extern struct attention_backend *harness_cuda, *harness_cpu;

bool harness_small(void);

// Whether attention folds on this device; else prints a comment.
bool harness_folds(void);

// A random 64-bit number; a number of 0..n-1, of [-1, 1), and of low..high.
uint64_t harness_random(void);
int64_t harness_below(int64_t n);
float harness_uniform(void);
int64_t harness_between(int64_t low, int64_t high);

// Fails the test with a message; a test has a maximum number of messages. The test continues.
#define EXPECT(condition, ...)                                                                     \
    ((condition) ? (void)0 : harness_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
void harness_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Prints a comment.
void harness_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Ends the program if a call of the runtime fails.
#define CUDA(call) harness_cuda_check((call), __FILE__, __LINE__, #call)
void harness_cuda_check(cudaError_t error, const char *file, int line, const char *call);

// Waits for the backend; fails the test after an error.
void harness_finish(void);

// ---- memory on both sides ----

// Host memory, and device memory of the same size with guards. Both are initially all ones, a NaN
// in every dtype.
struct twin {
    char *host, *device;
    size_t bytes;
    char *guarded; // the whole allocation
};

// `skew`: the device's address modulo 256.
struct twin twin_create(size_t bytes, size_t skew);
void twin_push(const struct twin *t); // host -> device
// Waits for the backend and returns a copy of the device's memory, to be freed.
void *twin_fetch(const struct twin *t) __attribute__((malloc));
// Frees both; the test fails if a guard was written to.
void twin_destroy(struct twin *t);

// Fills the host's side with uniform numbers of [-scale, scale), in fp32 or rounded to a dtype.
void twin_fill_floats(const struct twin *t, float scale);
void twin_fill_dtype(const struct twin *t, enum case_dtype dtype, float scale);

// ---- prepared operations ----

// An operation of the CUDA backend, ready to be launched.
struct prepared {
    struct attention_work *work;
    struct op_needs needs;
    struct twin table, zeros, scratch;
};

struct prepared prepared_create(const struct attention_op *op);
void prepared_destroy(struct prepared *x);

#endif
