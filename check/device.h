// SPDX-License-Identifier: Apache-2.0
// Arrays in the memory of a device: what the library asks of its CUDA part, which is a shared
// object of the same build that is loaded when it is wanted.
#ifndef CPATTN_CHECK_DEVICE_H
#define CPATTN_CHECK_DEVICE_H

#include "check/state.h"

// Called with figures that are a fail, while the device still holds what `statistics` read.
typedef void device_failed(struct cpattn_check *check, const struct cpattn_array *results,
                           diagnosis_statistics *statistics, void *context,
                           struct rank_report *report);

// An array of the caller's and what it holds.
struct device_array {
    const struct cpattn_array *array;
    struct cpattn_shape shape;
    size_t element_bytes;
};

struct check_device {
    const char *version; // of the package: both parts are of one build
    size_t state_bytes;  // of struct cpattn_check
    enum status (*open)(int device, void *stream, struct device_judge **judge, struct error *error);
    void (*close)(struct device_judge *judge); // takes NULL
    // Arrays are checked; each returns when the device is through.
    enum status (*fill)(struct device_judge *judge, const struct cpattn_check *check,
                        enum cpattn_tensor tensor, const struct cpattn_array *array,
                        struct error *error);
    enum status (*verify)(struct device_judge *judge, struct cpattn_check *check,
                          const struct cpattn_array *results, device_failed *failed,
                          struct rank_report *report, struct error *error);
    bool (*read)(struct device_judge *judge, void *host, const void *device, size_t bytes);
    // All elements of an array of the device, from or to [rows][heads][dim] of the host.
    enum status (*get)(struct device_judge *judge, const struct device_array *array, void *host,
                       struct error *error);
    enum status (*put)(struct device_judge *judge, const struct device_array *array,
                       const void *host, struct error *error);
};

// The one symbol of the CUDA part.
#define CHECK_CUDA_TABLE "cpattn_check_cuda_table"
typedef const struct check_device *check_cuda_table(void);

// Hands the check to a device, as cpattn_check_device() does, with the CUDA part that is given.
enum status device_use(struct cpattn_check *check, const struct check_device *table, int device,
                       void *stream, struct error *error) MUST_CHECK;

// The functions of the device that the check has.
enum status device_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error) MUST_CHECK;
enum status device_verify(struct cpattn_check *check, const struct cpattn_array *results,
                          struct cpattn_check_verdict *v, struct error *error) MUST_CHECK;
// Rows of `shape` of an input or result, densely; `host` has room for them.
enum status device_get(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, struct cpattn_shape shape, void *host,
                       struct error *error) MUST_CHECK;
// What only the host makes: a dense array of host memory to be filled, whose data free() takes, and
// the copy of it.
enum status device_mirror(const struct cpattn_check *check, enum cpattn_tensor tensor,
                          struct cpattn_array *host, struct error *error) MUST_CHECK;
enum status device_put(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, const struct cpattn_array *host,
                       struct error *error) MUST_CHECK;
// The elements of one row and head; NaN where they cannot be had.
void device_read(const struct cpattn_check *check, enum cpattn_tensor tensor, const void *at,
                 float *values);
void device_close(struct cpattn_check *check);

#endif
