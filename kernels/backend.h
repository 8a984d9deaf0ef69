// SPDX-License-Identifier: Apache-2.0
// A backend: its lifetime, its own attention kernels, and the elementwise operations of plans.
// Plans use a backend only through its table, struct backend_ops. Layouts are those of
// kernels/attention.h.
#ifndef CPATTN_KERNELS_BACKEND_H
#define CPATTN_KERNELS_BACKEND_H

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/prepared.h"
#include "kernels/rows.h"
#include "plan/element.h"

#define CONVERT_SUMMANDS_MAX 8

struct attention_work; // an attention operation prepared by a backend's own kernels

// The project's own kernels. They support every case, merge into O and LSE, and add to gradients.
struct attention_kernels {
    // Prepare and compute in one call. Tables and scratch are in the backend's own memory.
    enum status (*forward)(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error);
    enum status (*backward)(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error);
    // For prepared operations; as in struct provider_ops (kernels/provider.h). All NULL: the
    // backend prepares nothing, and only forward() and backward() are called.
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
    // dsink[h] -= sum over `rows` of exp(sink[h] - LSE[h][row]) * D[h][row]. `scratch` has
    // sink_grad_scratch() bytes; NULL: the backend uses its own.
    void (*sink_grad)(struct attention_backend *backend, const struct attention_shape *shape,
                      const struct packed_rows *rows, void *scratch, const float *sink,
                      const float *lse, const float *d, float *dsink);
    // Bytes of scratch of sink_grad(). NULL: it needs none.
    size_t (*sink_grad_scratch)(const struct attention_shape *shape,
                                const struct packed_rows *rows);
    // destination = source, rounded to nearest even
    void (*convert)(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                    void *destination, int64_t count);
    // Converts the sum of 2 to CONVERT_SUMMANDS_MAX arrays, which it adds in order. NULL: the
    // backend cannot.
    void (*convert_sum)(struct attention_backend *backend, enum case_dtype dtype,
                        const float *const *sources, int source_count, void *destination,
                        int64_t count);
    void (*fill)(struct attention_backend *backend, float *destination, float value, int64_t count);

    // Generic operations for providers whose kernels do not merge. Packed tensors are in `dtype`.
    // On a device, packed rows without a table get a temporary one for each call.

    // Merges O and LSE of packed rows into the running O and LSE, as kernels/attention.h says.
    void (*merge_rows)(struct attention_backend *backend, const struct attention_shape *shape,
                       const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                       const float *lse_packed, enum packed_layout layout, float *o, float *lse);
    // packed = source, rows of `width` elements, rounded to nearest even
    void (*pack_rows)(struct attention_backend *backend, const struct packed_rows *rows,
                      int64_t width, enum case_dtype dtype, const float *source, void *packed);
    // destination += packed, rows of `width` elements
    void (*add_rows)(struct attention_backend *backend, const struct packed_rows *rows,
                     int64_t width, enum case_dtype dtype, const void *packed, float *destination);
    // packed = the packed rows of source [heads][q_rows]
    void (*pack_heads)(struct attention_backend *backend, const struct attention_shape *shape,
                       const struct packed_rows *rows, enum packed_layout layout,
                       const float *source, float *packed);
    // Allocates memory for the tables and zeros of one plan, on host and device, until
    // tables_release(). Work that uses the memory of the previous plan must be finished.
    // RESOURCE_EXHAUSTED: out of memory. NULL: no operation of this backend has a table.
    enum status (*tables_reserve)(struct attention_backend *backend, size_t bytes, void **host,
                                  void **device, struct error *error);
    // Enqueues a copy of the first `bytes` bytes from host to device.
    void (*tables_push)(struct attention_backend *backend, size_t bytes);
    void (*tables_release)(struct attention_backend *backend);

    // Collectives. destination = destination (reduction) source. Each floating-point result is
    // rounded to nearest even. For an average, reduce() adds, and divide() divides the final sum.
    // The CPU backend accepts NULL as the backend.
    void (*reduce)(struct attention_backend *backend, enum collective_element element,
                   enum collective_reduction reduction, const void *source, void *destination,
                   int64_t count);
    void (*divide)(struct attention_backend *backend, enum collective_element element, int divisor,
                   void *destination, int64_t count);
    // Linear layers, on row-major matrices of `dtype`. All operations compute in fp32 and round
    // once. NULL: the backend runs no linear layers.
    const struct gemm_provider *const *gemm; // ends with NULL
    // to [m][n] = the activation of h [m][gates n] (plan/product.h); gates is 2 for SWIGLU, else 1
    void (*activate)(struct attention_backend *backend, enum case_dtype dtype,
                     const struct product *shape, const void *h, void *to);
    // to [m][gates n] = the gradient of h; d [m][n] is the gradient of the activation's result
    void (*activate_backward)(struct attention_backend *backend, enum case_dtype dtype,
                              const struct product *shape, const void *h, const void *d, void *to);
    // destination [n] = the sum over the rows of source [m][n]
    void (*column_sum)(struct attention_backend *backend, enum case_dtype dtype,
                       const struct product *shape, const void *source, void *destination);
    // destination [m][n] = the sum of the parts [m][n] of ranks 0 to k-1, added in this order, +
    // bias [n]. `own` is the part of own_rank. `parts` has those of the other ranks, in rank order
    // without a gap. bias may be NULL.
    void (*sum_parts)(struct attention_backend *backend, enum case_dtype dtype,
                      const struct product *shape, int own_rank, const void *parts, const void *own,
                      const void *bias, void *destination);
    // The cudaStream_t on which work is enqueued; NULL: work is done immediately.
    void *(*stream)(struct attention_backend *backend);
};

extern const struct backend_ops backend_cpu; // kernels/cpu

#endif
