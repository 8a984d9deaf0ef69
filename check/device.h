// SPDX-License-Identifier: Apache-2.0
// Arrays in the memory of a device: what the library asks of its CUDA part, which is a shared
// object of the same build that is loaded when it is wanted.
#ifndef CPATTN_CHECK_DEVICE_H
#define CPATTN_CHECK_DEVICE_H

#include "check/state.h"

struct collective_judge;
struct linear_tools;

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

// What the judges of collectives and linear layers do on a device, between jobs_begin() and
// jobs_end().
struct job_work {
    const struct collective_judge *collective;
    const struct linear_tools *linear;
    void *queue; // of both
    int before;  // the device that was current
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
    // Work that follows the caller's stream, room for it, which ends with the next one, and its
    // end: the device is through, and what failed on it is reported.
    void (*jobs_begin)(struct device_judge *judge, struct job_work *work);
    enum status (*jobs_room)(struct device_judge *judge, size_t bytes, void **room,
                             struct error *error);
    enum status (*jobs_end)(struct device_judge *judge, const struct job_work *work,
                            struct error *error);
};

// The one symbol of the CUDA part.
#define CHECK_CUDA_TABLE "cpattn_check_cuda_table"
typedef const struct check_device *check_cuda_table(void);

// Loads the CUDA part. UNIMPLEMENTED, with the reason, where there is none.
enum status device_part(const struct check_device **table, struct error *error) MUST_CHECK;

// Hands the check to a device, as cpattn_check_device() does, with the CUDA part that is given.
enum status device_use(struct cpattn_check *check, const struct check_device *table, int device,
                       void *stream, struct error *error) MUST_CHECK;
// The same for the check of a job, as cpattn_check_job_device().
enum status job_device_use(struct cpattn_check_job *job, const struct check_device *table,
                           int device, void *stream, struct error *error) MUST_CHECK;

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
