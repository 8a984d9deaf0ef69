// SPDX-License-Identifier: Apache-2.0
// Reads and writes elements of the caller's arrays.
#include "check/device.h"
#include "check/state.h"
#include "judge/dtype.h"

static void *element_at(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, int64_t row, int head)
{
    return (char *)array->data +
           array_offset(array, row, head) * (int64_t)tensor_element_bytes(&check->c, tensor);
}

void array_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                const struct cpattn_array *array, int64_t row, int head, float *values)
{
    if (check->device) {
        device_read(check, tensor, element_at(check, tensor, array, row, head), values);
        return;
    }
    dtype_read(tensor_dtype(&check->c, tensor), element_at(check, tensor, array, row, head), 0,
               cpattn_check_shape(check, tensor).dim, values);
}

void array_write(const struct cpattn_check *check, enum cpattn_tensor tensor,
                 const struct cpattn_array *array, int64_t row, int head, const float *values)
{
    dtype_write(tensor_dtype(&check->c, tensor), values, cpattn_check_shape(check, tensor).dim,
                element_at(check, tensor, array, row, head));
}
