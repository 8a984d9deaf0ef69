// SPDX-License-Identifier: Apache-2.0
// The messages of an exchange on a device. Regions in several pieces travel as they lie, or packed
// in the staging memory (rank/cuda/window.h).
#ifndef CPATTN_RANK_CUDA_PARCELS_H
#define CPATTN_RANK_CUDA_PARCELS_H

#include "kernels/cuda/regions_cuda.h"
#include "rank/cuda/execution.h"
#include "transport/transport.h"

// Of one exchange at a time.
struct parcels {
    struct message *messages; // of the exchange's transfers
    struct message_strides *strides;
    struct region_copy *copies;
    int message_max;
    size_t copy_max;
    bool packed; // the exchange at hand; else `strides` says how its messages lie
};

// Makes room for the exchanges of a plan; false: memory is short.
bool parcels_reserve(struct parcels *p, const struct plan *plan);
void parcels_fini(struct parcels *p);

// Makes the copies of an operation within the rank. INTERNAL: the sides of one have no common
// loops.
enum status parcels_copy(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                         struct attention_backend *backend, cudaStream_t stream,
                         struct error *error) MUST_CHECK;

// Sets the messages of an exchange and packs what it sends.
void parcels_pack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                  struct attention_backend *backend, cudaStream_t stream);

// Unpacks what has arrived.
void parcels_unpack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                    struct attention_backend *backend, cudaStream_t stream);

#endif
