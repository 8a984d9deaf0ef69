// SPDX-License-Identifier: Apache-2.0
// Arrays in device memory: the interface between the library and its CUDA part, which is a shared
// object of the same build, loaded on demand.
#ifndef CPATTN_CHECK_DEVICE_H
#define CPATTN_CHECK_DEVICE_H

#include "check/state.h"

struct collective_judge;
struct linear_tools;

// Called for a fail, while the data that `statistics` reads is still on the device.
typedef void device_failed(struct cpattn_check *check, const struct cpattn_array *results,
                           diagnosis_statistics *statistics, void *context,
                           struct rank_report *report);

// An array of the caller, with the properties of its tensor.
struct device_array {
    const struct cpattn_array *array;
    struct cpattn_shape shape;
    size_t element_bytes;
};

// The judges of collectives and linear layers for the memory of the tensors. On a device valid from
// jobs_begin() to jobs_end().
struct job_work {
    const struct collective_judge *collective;
    const struct linear_tools *linear;
    void *queue; // argument of both: struct cuda_queue; NULL: host
    int before;  // the device that was current before jobs_begin()
};

// The functions of the CUDA part.
struct check_device {
    const char *version; // version of the package; must equal the library's
    size_t state_bytes;  // sizeof(struct cpattn_check); likewise
    enum status (*open)(int device, void *stream, struct device_judge **judge, struct error *error);
    void (*close)(struct device_judge *judge); // accepts NULL
    // Arrays must be valid. Each function returns when the device has finished.
    enum status (*fill)(struct device_judge *judge, const struct cpattn_check *check,
                        enum cpattn_tensor tensor, const struct cpattn_array *array,
                        struct error *error);
    enum status (*verify)(struct device_judge *judge, struct cpattn_check *check,
                          const struct cpattn_array *results, device_failed *failed,
                          struct rank_report *report, struct error *error);
    // Copies bytes from the device to the host; false: failed.
    bool (*read)(struct device_judge *judge, void *host, const void *device, size_t bytes);
    // Copies all elements of a device array from or to [rows][heads][dim] on the host.
    enum status (*get)(struct device_judge *judge, const struct device_array *array, void *host,
                       struct error *error);
    enum status (*put)(struct device_judge *judge, const struct device_array *array,
                       const void *host, struct error *error);
    // jobs_begin() begins work that waits for the caller's stream. jobs_room() returns device
    // memory that is valid until its next call. jobs_end() waits for the device and returns its
    // errors.
    void (*jobs_begin)(struct device_judge *judge, struct job_work *work);
    enum status (*jobs_room)(struct device_judge *judge, size_t bytes, void **room,
                             struct error *error);
    enum status (*jobs_end)(struct device_judge *judge, const struct job_work *work,
                            struct error *error);
};

// The only symbol that the CUDA part exports: a check_cuda_table().
#define CHECK_CUDA_TABLE "cpattn_check_cuda_table"
typedef const struct check_device *check_cuda_table(void);

// Loads the CUDA part once. UNIMPLEMENTED, with the reason: it cannot be loaded.
enum status device_part(const struct check_device **table, struct error *error) MUST_CHECK;

// Selects a device for the check as cpattn_check_device() does, but with the given CUDA part.
enum status device_use(struct cpattn_check *check, const struct check_device *table, int device,
                       void *stream, struct error *error) MUST_CHECK;
// The same for the check of a job; see cpattn_check_job_device().
enum status job_device_use(struct cpattn_check_job *job, const struct check_device *table,
                           int device, void *stream, struct error *error) MUST_CHECK;

// cpattn_check_fill() and cpattn_check_verify() on the check's device.
enum status device_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error) MUST_CHECK;
enum status device_verify(struct cpattn_check *check, const struct cpattn_array *results,
                          struct cpattn_check_verdict *v, struct error *error) MUST_CHECK;
// Copies the rows of `shape` of an input or result to or from the dense array `host`.
enum status device_get(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, struct cpattn_shape shape, void *host,
                       struct error *error) MUST_CHECK;
// For tensors that only the host can compute: device_mirror() creates a dense host array, with data
// from malloc(); device_put() copies it to the device.
enum status device_mirror(const struct cpattn_check *check, enum cpattn_tensor tensor,
                          struct cpattn_array *host, struct error *error) MUST_CHECK;
enum status device_put(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, const struct cpattn_array *host,
                       struct error *error) MUST_CHECK;
// Reads the elements of one row and head from device address `at`; NaN if this fails.
void device_read(const struct cpattn_check *check, enum cpattn_tensor tensor, const void *at,
                 float *values);
void device_close(struct cpattn_check *check);

#endif
