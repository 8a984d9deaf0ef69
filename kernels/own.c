// SPDX-License-Identifier: Apache-2.0
// The backends' own kernels behind the contract of a provider.
#include <stdlib.h>

#include "kernels/provider.h"

// What an operation takes of the scratch.
struct prepared_op {
    size_t bytes;
};

static const struct own_provider *own(const struct attention_provider *p)
{
    return (const struct own_provider *)p;
}

static enum status own_supports(struct attention_provider *p, const struct attention_op *op,
                                struct error *reason)
{
    (void)p;
    (void)op;
    (void)reason;
    return STATUS_OK;
}

static enum status bytes_find(const struct own_provider *own, const struct attention_op *op,
                              size_t *bytes, struct error *error)
{
    float there;
    const struct attention_backward args = {.shape = op->shape,
                                            .slices = op->slices,
                                            .slice_count = op->slice_count,
                                            .bias = op->bias ? &there : NULL,
                                            .dbias = op->dbias ? &there : NULL};
    *bytes = 0;
    if (!op->backward || !own->ops->attention->backward_scratch)
        return STATUS_OK;
    return own->ops->attention->backward_scratch(own->backend, &args, bytes, error);
}

static enum status own_prepare(struct attention_provider *p, const struct attention_op *op,
                               struct prepared_op **prepared, size_t *scratch_bytes,
                               struct error *error)
{
    size_t bytes;
    *prepared = NULL;
    enum status status = bytes_find(own(p), op, &bytes, error);
    if (status != STATUS_OK || bytes == 0)
        return status;
    *prepared = malloc(sizeof(**prepared));
    if (!*prepared)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an operation");
    (*prepared)->bytes = bytes;
    *scratch_bytes += bytes;
    return STATUS_OK;
}

static enum status own_forward(struct attention_provider *p, const struct prepared_op *prepared,
                               const struct attention_forward *args, void *scratch,
                               struct error *error)
{
    (void)prepared;
    (void)scratch;
    return own(p)->ops->attention->forward(own(p)->backend, args, error);
}

static enum status own_backward(struct attention_provider *p, const struct prepared_op *prepared,
                                const struct attention_backward *args, void *scratch,
                                struct error *error)
{
    const struct attention_kernels *kernels = own(p)->ops->attention;
    if (prepared)
        kernels->lend(own(p)->backend, scratch, prepared->bytes);
    enum status status = kernels->backward(own(p)->backend, args, error);
    if (prepared)
        kernels->lend(own(p)->backend, NULL, 0);
    return status;
}

static void own_discard(struct attention_provider *p, struct prepared_op *prepared)
{
    (void)p;
    free(prepared);
}

static const struct provider_ops own_ops = {
    .supports = own_supports,
    .prepare = own_prepare,
    .forward = own_forward,
    .backward = own_backward,
    .discard = own_discard,
};

void own_provider_init(struct own_provider *own, const struct backend_ops *ops,
                       struct attention_backend *backend)
{
    *own = (struct own_provider){
        .base = {.ops = &own_ops, .name = PROVIDER_OWN_NAME}, .ops = ops, .backend = backend};
}
