// SPDX-License-Identifier: Apache-2.0
// The messages of an exchange on a device. Regions in several pieces are sent as strided messages,
// or packed in the staging memory (rank/cuda/window.h).
#ifndef CPATTN_RANK_CUDA_PARCELS_H
#define CPATTN_RANK_CUDA_PARCELS_H

#include "kernels/cuda/regions_cuda.h"
#include "rank/cuda/execution.h"
#include "transport/transport.h"

// Holds the messages of one exchange at a time.
struct parcels {
    struct message *messages;        // by transfer of the exchange
    struct message_strides *strides; // by transfer; not used if `packed`
    struct region_copy *copies;      // that pack or unpack
    int message_max;
    size_t copy_max;
    bool packed; // the current exchange sends packed regions
};

// Makes room for the exchanges of a plan; false: memory is short.
bool parcels_reserve(struct parcels *p, const struct plan *plan);
void parcels_fini(struct parcels *p);

// Enqueues the local copies of an OP_COPY. INTERNAL: the two sides of a copy have no common loops
// (transport/strided.h).
enum status parcels_copy(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                         struct attention_backend *backend, cudaStream_t stream,
                         struct error *error) MUST_CHECK;

// Sets the messages of an exchange, and enqueues the packing of its send regions.
void parcels_pack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                  struct attention_backend *backend, cudaStream_t stream);

// Enqueues the unpacking of the receive regions, behind the exchange.
void parcels_unpack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                    struct attention_backend *backend, cudaStream_t stream);

#endif
