// SPDX-License-Identifier: Apache-2.0
// Files of tensors in the safetensors format: 8 bytes with the length of a JSON header, the header,
// and the elements. Files are untrusted: every size is checked before use, and nothing is mapped,
// so that a file that shrinks meanwhile makes a read fail.
#ifndef CPATTN_CLIENT_SUBMIT_TENSORS_SAFETENSORS_H
#define CPATTN_CLIENT_SUBMIT_TENSORS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define SAFETENSORS_DIMS_MAX   8
#define SAFETENSORS_HEADER_MAX (16 << 20)
#define SAFETENSORS_COUNT_MAX  65536

struct safetensors_tensor {
    char *name; // as the file has it, any UTF-8
    // Name of the dtype in the format, such as "BF16" or "F32"; bytes of an element.
    const char *dtype;
    int element_bytes;
    int dims;
    int64_t shape[SAFETENSORS_DIMS_MAX];
    const void *data;      // elements to be written; NULL in a file that was read
    uint64_t begin, bytes; // place of the elements after data_begin
};

struct safetensors {
    struct safetensors_tensor *tensors; // in the order of their bytes
    int count;
    int fd;              // -1: none
    uint64_t data_begin; // offset of the elements in the file
};

// Reads a header (without the 8 bytes before it) that `data_bytes` bytes of elements follow.
// INVALID_ARGUMENT names the mistake; RESOURCE_EXHAUSTED. safetensors_fini().
enum status safetensors_parse(const char *header, size_t bytes, uint64_t data_bytes,
                              struct safetensors *s, struct error *error) MUST_CHECK;

// Opens a file and reads its header. NOT_FOUND, PERMISSION_DENIED; else as above, with the path.
enum status safetensors_open(const char *path, struct safetensors *s,
                             struct error *error) MUST_CHECK;

// The tensor of that name, or NULL.
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);

// Reads all elements of a tensor. DATA_LOSS: the file has become shorter.
enum status safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
                             void *data, struct error *error) MUST_CHECK;

// Writes a file of tensors that have name, dtype, element_bytes, shape and data; `begin` and
// `bytes` are filled in. The file appears complete or not at all: it is written beside its path
// first. A device, a pipe or a link is written directly. `metadata` are pairs of texts, ended by a
// NULL; or NULL.
enum status safetensors_write(const char *path, struct safetensors_tensor *tensors, int count,
                              const char *const *metadata, struct error *error) MUST_CHECK;

void safetensors_fini(struct safetensors *s); // accepts a zeroed struct

// Bytes of an element of a dtype of the format; 0: there is no such dtype.
int safetensors_element_bytes(const char *dtype);

// "BF16 [2, 512, 8, 128]". Returns `text`.
#define SAFETENSORS_TEXT_MAX 256
const char *safetensors_describe(const struct safetensors_tensor *t,
                                 char text[SAFETENSORS_TEXT_MAX]);

#endif
