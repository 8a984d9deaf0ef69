// SPDX-License-Identifier: Apache-2.0
// Who computes the attention of a plan. A provider is asked for each operation whether it takes it,
// prepares what it takes before the case begins, and then launches it any number of times.
#ifndef CPATTN_KERNELS_PROVIDER_H
#define CPATTN_KERNELS_PROVIDER_H

#include "kernels/backend.h"

struct prepared_op; // what a provider has worked out for one operation; NULL is allowed

struct attention_provider {
    const struct provider_ops *ops;
    const char *name; // as it is told in answers
};

struct provider_ops {
    // OK, or UNIMPLEMENTED with the reason as a sentence without a final stop.
    enum status (*supports)(struct attention_provider *p, const struct attention_op *op,
                            struct error *reason);
    // Does all work that grows with the slices, and says in *needs, all zeros before, what the
    // operation takes. The operation's slices stay where they are until discard(). UNIMPLEMENTED
    // like supports(), where only that much work shows it; RESOURCE_EXHAUSTED.
    enum status (*prepare)(struct attention_provider *p, const struct attention_op *op,
                           struct prepared_op **prepared, struct op_needs *needs,
                           struct error *error);
    // Writes the table to memory of the host, which the caller copies to `device` before the
    // operation is launched. Called once, of an operation that needs a table or zeros; NULL: none
    // does.
    void (*place)(struct attention_provider *p, struct prepared_op *prepared, void *host,
                  const void *device, void *zeros);
    // Both do what kernels/attention.h says: merge into O and LSE, add into gradients. A provider
    // whose kernels cannot do that lets the backend's generic operations do it. The slices of the
    // arguments are those of the operation. `scratch` is aligned to 256 bytes.
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
