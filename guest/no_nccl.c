// SPDX-License-Identifier: Apache-2.0
// Replaces transport/nccl.c in the guest library, which does not use NCCL: the guest has its own
// process group, possibly with another version of NCCL.
#include "transport/nccl.h"

enum status transport_nccl_create(struct transport *control, cudaStream_t stream, int channels,
                                  struct transport **t, struct error *error)
{
    (void)control;
    (void)stream;
    (void)channels;
    (void)t;
    return error_set(error, STATUS_UNIMPLEMENTED, "a guest has no NCCL of the library's");
}

cudaStream_t transport_nccl_stream(const struct transport *t)
{
    (void)t;
    return NULL;
}

enum status transport_nccl_call(struct transport *t, const struct nccl_call *call,
                                struct error *error)
{
    (void)t;
    (void)call;
    return error_set(error, STATUS_UNIMPLEMENTED, "a guest has no NCCL of the library's");
}
