// SPDX-License-Identifier: Apache-2.0
// A backend: its life, its own attention kernels, and the elementwise operations that every plan
// needs. One table per backend; plans know nothing else of it. Layouts are those of
// kernels/attention.h.
#ifndef CPATTN_KERNELS_BACKEND_H
#define CPATTN_KERNELS_BACKEND_H

#include "kernels/attention.h"
#include "kernels/prepared.h"
#include "kernels/rows.h"

struct attention_work; // one attention, prepared by a backend's own kernels

// The project's own kernels. They take every case, merge into O and LSE, and add into gradients.
struct attention_kernels {
    // At once: what is prepared otherwise is done here, in memory that the backend finds itself.
    enum status (*forward)(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error);
    enum status (*backward)(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error);
    // As of a provider (kernels/provider.h). All NULL: there is nothing to prepare.
    enum status (*prepare)(struct attention_backend *backend, const struct attention_op *op,
                           struct attention_work **work, struct op_needs *needs,
                           struct error *error);
    void (*place)(struct attention_backend *backend, struct attention_work *work, void *host,
                  const void *device, void *zeros);
    enum status (*launch_forward)(struct attention_backend *backend,
                                  const struct attention_work *work,
                                  const struct attention_forward *args, void *scratch,
                                  struct error *error);
    enum status (*launch_backward)(struct attention_backend *backend,
                                   const struct attention_work *work,
                                   const struct attention_backward *args, void *scratch,
                                   struct error *error);
    void (*discard)(struct attention_backend *backend, struct attention_work *work); // takes NULL
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
    // dsink[h] -= sum over the rows of exp(sink[h] - LSE[h][row]) * D[h][row]. `scratch` has
    // sink_grad_scratch() bytes; NULL: the backend finds its own.
    void (*sink_grad)(struct attention_backend *backend, const struct attention_shape *shape,
                      const struct packed_rows *rows, void *scratch, const float *sink,
                      const float *lse, const float *d, float *dsink);
    // NULL: it takes none.
    size_t (*sink_grad_scratch)(const struct attention_shape *shape,
                                const struct packed_rows *rows);
    void (*convert)(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                    void *destination, int64_t count);
    void (*fill)(struct attention_backend *backend, float *destination, float value, int64_t count);

    // For providers whose kernels do not merge. Packed tensors are in `dtype`. Packed rows that
    // have no table get one for each call.
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
    // Memory for the tables and zeros of one plan, host and device side by side, until release().
    // RESOURCE_EXHAUSTED. Nothing that uses the memory of the plan before is under way. NULL:
    // no operation of this backend has a table.
    enum status (*tables_reserve)(struct attention_backend *backend, size_t bytes, void **host,
                                  void **device, struct error *error);
    // Puts a copy of the first bytes of it on the stream.
    void (*tables_push)(struct attention_backend *backend, size_t bytes);
    void (*tables_release)(struct attention_backend *backend);

    // The cudaStream_t that work is put on; NULL where work is done at once.
    void *(*stream)(struct attention_backend *backend);
};

extern const struct backend_ops backend_cpu; // kernels/cpu

#endif
