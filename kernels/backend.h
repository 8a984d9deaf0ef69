// SPDX-License-Identifier: Apache-2.0
// A backend: its life, its own attention kernels, and the elementwise operations that every plan
// needs. One table per backend; plans know nothing else of it. Layouts are those of
// kernels/attention.h.
#ifndef CPATTN_KERNELS_BACKEND_H
#define CPATTN_KERNELS_BACKEND_H

#include "kernels/attention.h"
#include "kernels/rows.h"

// The project's own kernels. They take every case, merge into O and LSE, and add into gradients.
struct attention_kernels {
    enum status (*forward)(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error);
    enum status (*backward)(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error);
    // Memory that a backward takes of what lend() has lent, in *bytes: known before it is run, so
    // that a case is admitted with it. Of the tensors only counts whether there is a bias and its
    // gradient. A backward that is lent less finds its own. NULL, as lend(): it takes none.
    enum status (*backward_scratch)(struct attention_backend *backend,
                                    const struct attention_backward *args, size_t *bytes,
                                    struct error *error);
    // Lends scratch, aligned to 256 bytes, to the next call; none with 0 bytes. The work that is
    // put on the stream then uses it.
    void (*lend)(struct attention_backend *backend, void *scratch, size_t bytes);
};

struct backend_ops {
    const char *name; // "cpu"
    bool on_device;   // tensors are in memory of a CUDA device
    const struct attention_kernels *attention;
    enum status (*create)(struct attention_backend **backend, struct error *error);
    void (*destroy)(struct attention_backend *backend);
    // D[h][row] = sum over d_v of dO * O, for all q_rows. dO in dtype, O fp32.
    void (*row_dot)(struct attention_backend *backend, const struct attention_shape *shape,
                    const void *d_out, const float *o, float *d);
    void (*add)(struct attention_backend *backend, const float *source, float *destination,
                int64_t count);
    // destination = max(destination, source); NaN where either is NaN
    void (*max)(struct attention_backend *backend, const float *source, float *destination,
                int64_t count);
    // destination[h][row] = source[h], for all heads and q_rows of the shape.
    void (*fill_heads)(struct attention_backend *backend, const struct attention_shape *shape,
                       const float *source, float *destination);
    // dsink[h] -= sum over the rows of the slices of exp(sink[h] - LSE[h][row]) * D[h][row].
    void (*sink_grad)(struct attention_backend *backend, const struct attention_shape *shape,
                      const struct slice *slices, int32_t slice_count, const float *sink,
                      const float *lse, const float *d, float *dsink);
    void (*convert)(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                    void *destination, int64_t count);
    void (*fill)(struct attention_backend *backend, float *destination, float value, int64_t count);

    // For providers whose kernels do not merge. Packed tensors are in `dtype`.
    // Merges O and LSE of packed rows into running ones, as kernels/attention.h says.
    void (*merge_rows)(struct attention_backend *backend, const struct attention_shape *shape,
                       const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                       const float *lse_packed, enum packed_layout layout, float *o, float *lse);
    // packed = source, rows of `width` elements, rounded to nearest even
    void (*pack_rows)(struct attention_backend *backend, const struct packed_rows *rows,
                      int64_t width, enum case_dtype dtype, const float *source, void *packed);
    // destination += packed, rows of `width` elements
    void (*add_rows)(struct attention_backend *backend, const struct packed_rows *rows,
                     int64_t width, enum case_dtype dtype, const void *packed, float *destination);
    // packed = source [heads][q_rows]
    void (*pack_heads)(struct attention_backend *backend, const struct attention_shape *shape,
                       const struct packed_rows *rows, enum packed_layout layout,
                       const float *source, float *packed);
    // The cudaStream_t that work is put on; NULL where work is done at once.
    void *(*stream)(struct attention_backend *backend);
};

extern const struct backend_ops backend_cpu; // kernels/cpu

#endif
