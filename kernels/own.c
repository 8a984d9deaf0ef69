// SPDX-License-Identifier: Apache-2.0
// Adapts a backend's own kernels to the interface of a provider.
#include "kernels/provider.h"

// The work that the kernels prepared; NULL: they prepare nothing.
static struct attention_work *work_of(const struct prepared_op *prepared)
{
    return (struct attention_work *)(uintptr_t)prepared;
}

static const struct own_provider *own(const struct attention_provider *p)
{
    return (const struct own_provider *)p;
}

static const struct attention_kernels *kernels_of(const struct attention_provider *p)
{
    return own(p)->ops->attention;
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
                               struct prepared_op **prepared, struct op_needs *needs,
                               struct error *error)
{
    struct attention_work *work = NULL;
    enum status status = STATUS_OK;
    if (kernels_of(p)->prepare)
        status = kernels_of(p)->prepare(own(p)->backend, op, &work, needs, error);
    *prepared = (struct prepared_op *)work;
    return status;
}

static void own_place(struct attention_provider *p, struct prepared_op *prepared, void *host,
                      const void *device, void *zeros)
{
    kernels_of(p)->place(own(p)->backend, work_of(prepared), host, device, zeros);
}

static enum status own_forward(struct attention_provider *p, const struct prepared_op *prepared,
                               const struct attention_forward *args, void *scratch,
                               struct error *error)
{
    const struct attention_kernels *kernels = kernels_of(p);
    struct attention_backend *backend = own(p)->backend;
    return prepared ? kernels->launch_forward(backend, work_of(prepared), args, scratch, error)
                    : kernels->forward(backend, args, error);
}

static enum status own_backward(struct attention_provider *p, const struct prepared_op *prepared,
                                const struct attention_backward *args, void *scratch,
                                struct error *error)
{
    const struct attention_kernels *kernels = kernels_of(p);
    struct attention_backend *backend = own(p)->backend;
    return prepared ? kernels->launch_backward(backend, work_of(prepared), args, scratch, error)
                    : kernels->backward(backend, args, error);
}

static void own_discard(struct attention_provider *p, struct prepared_op *prepared)
{
    if (prepared)
        kernels_of(p)->discard(own(p)->backend, work_of(prepared));
}

static const struct provider_ops own_ops = {
    .supports = own_supports,
    .prepare = own_prepare,
    .place = own_place,
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
