// SPDX-License-Identifier: Apache-2.0
// Who computes the attention of a plan. A provider is asked for each operation whether it takes it,
// prepares what it takes before the case begins, and then runs it any number of times.
#ifndef CPATTN_KERNELS_PROVIDER_H
#define CPATTN_KERNELS_PROVIDER_H

#include "kernels/backend.h"

// One attention of a plan, as it is known before anything runs.
struct attention_op {
    struct attention_shape shape;
    bool backward;
    bool bias, dbias, max_logit; // whether it has, or wants, one
    const struct slice *slices;
    int32_t slice_count;
};

struct prepared_op; // what a provider has worked out for one operation; NULL is allowed

struct attention_provider {
    const struct provider_ops *ops;
    const char *name; // as it is told in answers
};

struct provider_ops {
    // OK, or UNIMPLEMENTED with the reason as a sentence without a final stop.
    enum status (*supports)(struct attention_provider *p, const struct attention_op *op,
                            struct error *reason);
    // Does all work that grows with the slices. Adds to *scratch_bytes what the operation needs
    // while it runs. The operation's slices stay where they are until discard(). UNIMPLEMENTED like
    // supports(), where only that much work shows it; RESOURCE_EXHAUSTED.
    enum status (*prepare)(struct attention_provider *p, const struct attention_op *op,
                           struct prepared_op **prepared, size_t *scratch_bytes,
                           struct error *error);
    // Both do what kernels/attention.h says: merge into O and LSE, add into gradients. A provider
    // whose kernels cannot do that lets the backend's generic operations do it. `scratch` is
    // aligned to 256 bytes.
    enum status (*forward)(struct attention_provider *p, const struct prepared_op *prepared,
                           const struct attention_forward *args, void *scratch,
                           struct error *error);
    enum status (*backward)(struct attention_provider *p, const struct prepared_op *prepared,
                            const struct attention_backward *args, void *scratch,
                            struct error *error);
    void (*discard)(struct attention_provider *p, struct prepared_op *prepared);
};

// The kernels of a backend as a provider. They take every operation.
#define PROVIDER_OWN_NAME "cpattn"
struct own_provider {
    struct attention_provider base;
    const struct backend_ops *ops;
    struct attention_backend *backend;
};

// Borrows the backend for the provider's life.
void own_provider_init(struct own_provider *own, const struct backend_ops *ops,
                       struct attention_backend *backend);

#endif
