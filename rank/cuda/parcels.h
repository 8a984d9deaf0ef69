// SPDX-License-Identifier: Apache-2.0
// The messages of an exchange on a device. Regions in several pieces travel packed, in the staging
// memory.
#ifndef CPATTN_RANK_CUDA_PARCELS_H
#define CPATTN_RANK_CUDA_PARCELS_H

#include "kernels/cuda/regions_cuda.h"
#include "rank/cuda/execution.h"
#include "transport/transport.h"

// Of one exchange at a time.
struct parcels {
    struct message *messages; // of the exchange's transfers
    struct region_copy *copies;
    int message_max;
    size_t copy_max;
};

// Makes room for the exchanges of a plan; false: memory is short.
bool parcels_reserve(struct parcels *p, const struct plan *plan);
void parcels_fini(struct parcels *p);

// Sets the messages of an exchange and packs what it sends.
void parcels_pack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                  struct attention_backend *backend, cudaStream_t stream);

// Unpacks what has arrived.
void parcels_unpack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                    struct attention_backend *backend, cudaStream_t stream);

#endif
