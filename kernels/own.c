// SPDX-License-Identifier: Apache-2.0
// The backends' own kernels behind the contract of a provider.
#include "kernels/provider.h"

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

static enum status own_prepare(struct attention_provider *p, const struct attention_op *op,
                               struct prepared_op **prepared, size_t *scratch_bytes,
                               struct error *error)
{
    (void)p;
    (void)op;
    (void)scratch_bytes;
    (void)error;
    *prepared = NULL;
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
    (void)prepared;
    (void)scratch;
    return own(p)->ops->attention->backward(own(p)->backend, args, error);
}

static void own_discard(struct attention_provider *p, struct prepared_op *prepared)
{
    (void)p;
    (void)prepared;
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
